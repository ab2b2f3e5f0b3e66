"""Science and health: studies, finds."""

# ruff: noqa: E501
from __future__ import annotations

from stream_lsh.demo.desks.names import POOLS
from stream_lsh.demo.story import Desk, Topic

STUDY = Topic(
    headlines=(
        "Study links {cause} to {effect}",
        "{cause}: what a study with {people} volunteers found",
        "Researchers in {town} report on {cause} and {effect}",
    ),
    leads=(
        "{cause} may [be linked to|go along with|be associated with] {effect}, according to a study of {people} adults led by {lead} of the University of {town}.",
        "people who report {cause} show {effect} [more often|markedly more often] than others, researchers [write|report] in the journal {journal}.",
        "a team from the University of {town} has followed {people} volunteers for {years} years to find out [whether there is|if there is] a link between {cause} and {effect}.",
    ),
    parts=(
        (
            "The researchers compared {people2} participants with a control group and [found|measured] a difference of {percent} per cent.",
            "The effect was small but steady: {percent} per cent over the whole period, and a little more among those over {age}.",
            "After correction for income, age and smoking the difference shrank from {percent} to {percent2} per cent.",
            "Among the {people2} women in the study the effect was {percent} per cent, among the men it could not be told from chance.",
        ),
        (
            "\"This does not prove that one causes the other,\" {lead.last} [warned|cautioned].",
            "\"We were surprised ourselves and repeated the analysis {times} times,\" said {lead.last}.",
            "\"Nobody should change a whole life because of one paper,\" said the lead author, {lead}.",
            "\"What we see in the data is a door, not a room,\" {lead.last} said in {town}.",
        ),
        (
            "Each participant wore a sensor for {days} days and kept a diary.",
            "Blood samples were taken every {months} months and frozen at minus {cold} degrees.",
            "The data come from {centres} health centres in {region}, which have kept the same records since {year}.",
            "Interviews took {minutes} minutes and were repeated after {months} months.",
        ),
        (
            "{other}, a statistician at the technical college in {town2} who was not involved, called the sample \"impressive, but far from random\".",
            "Others are [doubtful|sceptical]: {other}, who runs a clinic in {town2}, has seen no such pattern among {patients} patients.",
            "\"The questionnaire is the weak point,\" said {other} of the hospital in {town2}.",
            "{other}, who published a similar study in {year}, spoke of an important confirmation.",
        ),
        (
            "An experiment with mice in {year} had pointed in the same direction.",
            "Earlier work, with {patients2} patients, had found the opposite.",
            "About {share} per cent of the population are affected, according to the health insurers.",
            "The authorities have recommended caution since {year}, without giving a limit.",
        ),
        (
            "The study cost {money} million euros and was paid for by the research council.",
            "A follow-up with {centres} hospitals begins in {season}.",
            "The authors have made their data available to other groups; two companies had asked for them in vain.",
            "Results on children are to follow in {month}.",
        ),
    ),
    extras=(
        "The journal {journal} added a note on {weekday}: in one table the columns for men and women had been exchanged, which does not touch the conclusions; the corrected version has been online since the evening.",
        "The professional association of general practitioners advised patients not to stop any treatment on their own; its president, {president}, said that surgeries had received hundreds of calls within {days} days.",
        "In a first reaction the ministry of health announced that a commission of {centres} experts would examine whether the recommendations of {year} need to be changed.",
    ),
    doubles=(2, 4, 5),
    pools={
        "cause": (
            "short sleep", "evening walks", "a diet rich in pulses", "frequent night shifts", "living near a main road", "singing in a choir",
            "owning a dog", "learning a second language", "drinking unfiltered coffee", "gardening", "long commutes", "reading aloud",
            "cold showers", "climbing stairs", "late meals", "noise at the workplace", "playing an instrument", "wearing hearing aids",
        ),
        "effect": (
            "lower blood pressure", "better memory", "weaker bones", "fewer colds", "slower reactions", "a calmer pulse", "less back pain",
            "poorer eyesight", "longer concentration", "more frequent headaches", "better balance", "raised blood sugar", "fewer falls",
        ),
        "journal": ("Annals of Public Health", "Body and Mind", "Northern Medicine", "Cohort", "Epidemiology Letters", "Clinical Horizons"),
    },
    ranges={
        "people": (840, 96000), "people2": (210, 8200), "years": (3, 21), "percent": (9, 34), "percent2": (3, 8), "age": (45, 70), "times": (3, 9),
        "days": (5, 30), "months": (3, 18), "cold": (20, 80), "centres": (7, 64), "minutes": (20, 95), "patients": (300, 5200),
        "share": (3, 19), "money": (2, 17),
    },
)  # fmt: skip

FIND = Topic(
    headlines=(
        "{find} found near {town}",
        "Workers digging for {works} uncover {find}",
        "{find} near {town}: {age} years old, experts say",
    ),
    leads=(
        "workers who were digging a trench for {works} near {town} have [found|discovered|unearthed] {find}.",
        "archaeologists have [presented|shown] {find} that came to light in a field outside {town} in {month}.",
        "for {age} years nobody knew about it: {find} lay [less than|barely] {cm} centimetres under {street} in {town} until an excavator driver stopped in time.",
    ),
    parts=(
        (
            "\"I saw something that was too straight for a stone,\" said {driver}, who operated the excavator.",
            "{driver}, a hobby historian from {town2}, had reported a coin from the same field in {year}.",
            "It was {driver}, a student on a {weeks}-week placement, who first brushed the earth aside.",
            "The farmer, {driver}, had ploughed around the spot for {years} years because the tractor sank in there.",
        ),
        (
            "In the trench, the part already uncovered measures {cm2} by {cm} centimetres and is in remarkably good condition.",
            "Wood from the same layer has been dated to about {age} years ago.",
            "Around it lay {pieces} fragments of pottery, [some|a few] of them painted, and the bones of a {animal}.",
            "Scans show that there are {pieces} more objects at a depth of {metres} metres.",
        ),
        (
            "\"Nothing like it has been recorded in {region},\" said {expert}, head of the excavation.",
            "{expert} of the regional museum speaks of [luck|great luck]: a few metres to the left, the old sewer had destroyed everything.",
            "\"We can tell what they ate, but not what they believed,\" the archaeologist {expert} said.",
            "According to {expert}, who directs the dig, the place was abandoned after a fire and never built on again.",
        ),
        (
            "The nearest comparable site lies {km} kilometres away on the {river} and was dug up in {year}.",
            "At that time a trade route led along the {river} to the coast.",
            "Old maps of {town} show a chapel at this spot, which was pulled down when the railway came.",
            "So far the books had it that nobody lived here before the mill was built.",
        ),
        (
            "Building work on {works} [rests|is suspended] for {weeks} weeks; the delay costs {fee} thousand euros.",
            "The builders of {works} have moved their trench by {metres} metres.",
            "Guards now watch the site at night after two people with metal detectors were seen on {weekday}.",
            "{count} volunteers have offered their help, more than the team can use.",
        ),
        (
            "From {month2} the find will be on display in the museum of {town}; admission is free.",
            "It will first go to the laboratory in {town2}, where it has to dry for {months} months.",
            "On {weekday2} visitors can look over the shoulders of the archaeologists between ten and four.",
            "Whether it can stay in {town} is undecided; the state museum has made a claim.",
        ),
    ),
    extras=(
        "The state office for monuments put the find under protection on {weekday2} and asked the owners of {count} neighbouring plots to report any digging deeper than {cm} centimetres.",
        "A second laboratory has since confirmed the date with {pieces} samples; the uncertainty is given as {years} years in either direction, {expert.last} said.",
        "The council of {town} approved {fee} thousand euros for a shelter over the site, so that the dig can go on through the winter while school classes visit.",
    ),
    doubles=(1, 3),
    pools={
        "find": (
            "a Roman well", "a medieval shoemaker's workshop", "a bronze age grave", "a hoard of silver coins", "a wooden boat", "the walls of a bath house",
            "a glass furnace", "a row of Iron Age pits", "a stone altar", "a Viking comb with runes", "the skeleton of a horse with its harness",
            "a mosaic floor", "a cellar full of wine jugs", "an oak bridge",
        ),
        "works": ("a gas pipe", "a data cable", "a new kindergarten", "a bypass", "district heating", "a cycle path", "a supermarket", "a rain basin"),
        "animal": ("dog", "goat", "young pig", "heron", "crane", "calf"),
    },
    ranges={
        "age": (620, 4200), "cm": (35, 140), "cm2": (60, 410), "weeks": (3, 16), "years": (8, 40), "pieces": (14, 900), "metres": (2, 12),
        "km": (11, 160), "fee": (40, 800), "count": (12, 180), "months": (4, 30),
    },
)  # fmt: skip

DESK = Desk("science", (STUDY, FIND), POOLS)
