// JSON in which integers beyond 2^53 stay exact: they are read as BigInt.

const exact = (_, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
    ? BigInt(context.source) : value;

export const parse = (text) => JSON.parse(text, exact);

// An id as JSON, so that numbers and strings stay distinct.
export const idText = (id) => (typeof id === "bigint" ? String(id) : JSON.stringify(id));
