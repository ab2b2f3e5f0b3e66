"""People, places and days of the English desks, all made up; where one exists, it is by chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_STEMS = (
    "Ash", "Bram", "Cald", "Dun", "Elm", "Fair", "Green", "Hart", "Ings", "Kel", "Lang", "Mar", "Nor", "Oak", "Pen",
    "Ram", "Sand", "Thorn", "Under", "Wend", "Wool", "Brack", "Crow", "Hazel",
)  # fmt: skip
_ENDS = (
    "bridge", "bury", "by", "combe", "dale", "field", "ford", "ham", "leigh", "mere", "mouth", "stead", "ton", "wick",
)  # fmt: skip
TOWNS = tuple(stem + end for stem in _STEMS for end in _ENDS)

POOLS: Mapping[str, Sequence[str]] = {
    "firstname": (
        "Amina", "Anders", "Beatriz", "Callum", "Carla", "Daniel", "Deepa", "Dorothy", "Edwin", "Elena", "Farid",
        "Fiona", "Gareth", "Grace", "Hanna", "Hugo", "Ines", "Ivan", "Joanne", "Jonas", "Karim", "Katrin", "Leo",
        "Lucia", "Marcus", "Mei", "Nadia", "Niall", "Olga", "Oscar", "Paula", "Peter", "Priya", "Rachel", "Ravi",
        "Rosa", "Samuel", "Sofia", "Tariq", "Teresa", "Tom", "Ursula", "Victor", "Wendy", "Yusuf", "Zoe",
    ),
    "lastname": (
        "Abbott", "Adeyemi", "Almeida", "Barlow", "Bauer", "Bennett", "Brandt", "Carver", "Castellano", "Chowdhury",
        "Coyle", "Delgado", "Dixon", "Ekström", "Farrell", "Fielding", "Fontaine", "Garrett", "Grieve", "Hadley",
        "Halloran", "Hussain", "Ibarra", "Jansen", "Kapoor", "Kessler", "Kowalski", "Lambert", "Larkin", "Lindqvist",
        "Maddox", "Marchetti", "McAllister", "Mendes", "Nakamura", "Novak", "Okafor", "Osborne", "Pereira", "Pryce",
        "Quigley", "Rahman", "Renshaw", "Rossi", "Sandoval", "Sharpe", "Silva", "Sorensen", "Tanaka", "Thackeray",
        "Ueda", "Vance", "Varga", "Wallis", "Whitlock", "Winters", "Yilmaz", "Zeller",
    ),
    "town": TOWNS,
    "river": (
        "Aller", "Brede", "Corran", "Dove", "Esk", "Fenn", "Garrow", "Irwell", "Lune", "Marl", "Nidd", "Orrin", "Pell",
        "Rother", "Swale", "Teign", "Ure", "Wend",
    ),
    "region": (
        "the Vale of Corran", "the Northern Marches", "East Lindmark", "the Fenlands", "the Upper Swale",
        "West Harland", "the Lake Counties", "the Southern Downs", "the Marl Valley", "the Coastal District",
    ),
    "street": (
        "Bridge Street", "Castle Lane", "Chapel Road", "Church Hill", "Cooper Street", "Dock Road", "Foundry Lane",
        "Garden Row", "Harbour Street", "High Street", "King's Road", "Market Place", "Mill Lane", "Orchard Way",
        "Priory Road", "Quay Street", "Rectory Close", "School Lane", "Station Road", "Weavers' Row",
    ),
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "month": (
        "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
        "December",
    ),
    "year": tuple(str(year) for year in range(1987, 2024)),
    "oldyear": tuple(str(year) for year in range(1891, 1979)),
    "season": ("the spring", "the summer", "the autumn", "the winter", "the end of the year", "early next year"),
}  # fmt: skip
