// The settings of the index, as the last statistics have them; null before the first.

let known = null;

export const settings = () => known;
export const measure = () => known?.measure ?? "jaccard";
// index: of the statistics.
export const learn = (index) => { known = { ...index.settings, texts: index.texts }; };
