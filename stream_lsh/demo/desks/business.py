"""Business: results, factories, take-overs."""

# ruff: noqa: E501
from __future__ import annotations

from stream_lsh.demo.desks.names import POOLS
from stream_lsh.demo.story import Desk, Topic

_COMPANY = {
    "company": tuple(
        f"{name} {kind}"
        for name in ("Arden", "Bellweather", "Corvane", "Delmont", "Estrel", "Fennick", "Galvane", "Halcross", "Juniper",
                     "Kestrel", "Lomond", "Meridan", "Norvik", "Ostara", "Pelham", "Quillon", "Rowan", "Tarn", "Valdor")
        for kind in ("Foods", "Group", "Logistics", "Marine", "Motors", "Optics", "Paper", "Pharma", "Steel", "Textiles")
    ),
}  # fmt: skip

RESULTS = Topic(
    headlines=(
        "{company} lifts forecast as {product} sales grow",
        "{company} earns {profit} million euros in the {quarter} quarter",
        "Demand for {product} carries {company} through weak quarter",
    ),
    leads=(
        "{company} [earned|made] {profit} million euros in the {quarter} quarter, {percent} per cent more than a year ago, helped by [strong|unexpectedly strong] demand for {product}.",
        "shares in {company} [rose|climbed|gained] {percent2} per cent on {weekday} after the maker of {product} [raised|lifted] its forecast for the year.",
        "the manufacturer {company} has weathered a weak {quarter} quarter: sales of {product} offset a fall in orders from {market}.",
        "{company} [will close|is to give up] its plant in {town} and concentrate the production of {product} in {town2}, the company said on {weekday}.",
    ),
    parts=(
        (
            "Revenue came to {revenue} million euros, of which {share} per cent was earned abroad.",
            "Orders worth {revenue3} million euros were on the books at the end of {month}, enough for {weeks} weeks of work.",
            "Operating costs fell by {percent2} per cent after the company [renegotiated|cancelled] contracts with {count} suppliers.",
            "Analysts had on average expected a profit of {guess} million euros.",
        ),
        (
            "\"We sold what we could make, and we could have sold more,\" said {chief}, the chief executive.",
            "Chief executive {chief} spoke of \"a solid result in a market that forgives nothing\".",
            "\"The worst of the shortage is behind us,\" {chief}, who has run the company since {year}, told [investors|analysts] in a call.",
            "\"I would rather be late with a good machine than early with a bad one,\" said {chief}, who took over in {year}.",
        ),
        (
            "For the full year the company now expects revenue to grow by {low} to {high} per cent.",
            "The dividend is to remain at {cents} cents a share, [a disappointment to|a blow for] some smaller shareholders.",
            "The board proposes a dividend of {cents} cents and a share buyback over {weeks} weeks.",
            "Net debt was reduced to {debt} million euros, the lowest figure since {year}.",
        ),
        (
            "{analyst}, an analyst with a bank in {town2}, kept a \"hold\" rating and pointed to rising wages.",
            "\"The margin is the story here,\" said {analyst}, who follows the sector for a fund in {town2}.",
            "The analyst {analyst} called the inventory of {product2} \"uncomfortably high\".",
            "{analyst} of the shareholders' association criticised bonuses of {debt} thousand euros for each member of the board.",
        ),
        (
            "In {market} sales shrank by {share2} per cent because dealers [ran down|reduced] their stocks.",
            "A new line for {product2} starts up in {season} and will create {jobs} jobs.",
            "The works council in {town} reported {hours} hours of overtime in {month} alone and asked for {jobs} more colleagues.",
            "Energy for the main plant in {town}, where {staff} people work, was bought in advance until {month2}.",
        ),
        (
            "The company was founded in {town} in {oldyear} as a workshop with {founders} employees.",
            "A rival had offered {revenue2} million euros for the whole group in {year}; the founding family declined.",
            "Figures for the next quarter will be published on {day} {month}.",
            "The shareholders meet on {day} {month} in {town2}.",
        ),
    ),
    extras=(
        "After the close of trading {company} added that the authorities in {market} have opened a routine inquiry into the labelling of {product2}; it concerns about {share2} per cent of deliveries and does not change the forecast.",
        "The trade union asked for a share of the profit: its negotiator, {negotiator}, demanded a single payment of {bonus} euros for each of the {staff} employees and announced talks for {weekday2}.",
        "In a correction to its tables the company said that currency effects had reduced revenue by {guess} million euros, most of it in {market}, where the new warehouse has been working since {month}.",
    ),
    pools=_COMPANY
    | {
        "product": (
            "heat pumps", "cargo bicycles", "hearing aids", "frozen vegetables", "packaging film", "kitchen ovens", "rail brakes",
            "contact lenses", "garden tools", "cooling units", "marine paint", "work clothes", "insulin pens", "roof tiles",
            "electric motors", "baby food", "hydraulic valves", "coffee machines", "tyres for tractors", "glass fibre",
        ),
        "market": ("Asia", "North America", "southern Europe", "the Nordic countries", "Latin America", "the Gulf states", "eastern Europe"),
        "quarter": ("first", "second", "third", "fourth"),
    },
    ranges={
        "profit": (6, 940), "percent": (3, 64), "percent2": (2, 17), "revenue": (110, 6400), "share": (31, 78), "share2": (4, 24),
        "weeks": (6, 46), "count": (4, 90), "guess": (5, 900), "low": (2, 5), "high": (6, 14), "cents": (18, 310), "debt": (40, 870),
        "jobs": (25, 600), "hours": (900, 22000), "staff": (180, 8800), "founders": (3, 19), "day": (2, 28), "bonus": (400, 3500),
    },
)  # fmt: skip

STRIKE = Topic(
    headlines=(
        "Workers at {company} walk out over {issue}",
        "Strike over {issue} stops production in {town}",
        "{union} and {company} agree on {issue}",
    ),
    leads=(
        "some {staff} employees of {company} in {town} [stopped|downed tools and stopped] work on {weekday} in a dispute over {issue}.",
        "talks between {company} and {union} about {issue} [ended without result|broke down] on {weekday} after {hours} hours.",
        "{union} [has|have] called on members at {company} to [strike|walk out] for {hours} hours on {weekday}, [the first stoppage|the first such action] at the {town} site since {year}.",
    ),
    parts=(
        (
            "{union} [demands|demand] {percent} per cent more pay over {months} months, while the employer has offered {percent2} per cent.",
            "The employer's last offer provided for {percent2} per cent and a single payment of {bonus} euros.",
            "At issue are the night shifts in {hall}, where {count} people work in three crews.",
            "In a ballot {share} per cent of the members had voted in favour, with {count} votes against.",
        ),
        (
            "\"We are not asking for the moon, we are asking for the roster of {year},\" said {delegate}, a shop steward.",
            "\"My colleagues have not had a free Sunday since {month},\" the shop steward {delegate} said at the gate.",
            "The negotiator for the workers, {delegate}, said that the mood was \"[calm|quiet], which is worse than loud\".",
            "{delegate}, who has worked in {hall} for {years} years, [held up|showed] a pay slip: {pay} euros after deductions.",
        ),
        (
            "Personnel director {chief} regretted the stoppage and said that a better offer would [cost|endanger] {jobs} jobs.",
            "\"Every day costs us {loss} thousand euros,\" said {chief}, who leads the talks for the company.",
            "The company considers the action unlawful, said its spokesperson {chief}, but would not go to court for the time being.",
            "A spokesperson, {chief}, pointed out that wages in {town} are {percent} per cent above those in the industry.",
        ),
        (
            "Lorries queued for {km} kilometres along {street} because nobody unloaded them.",
            "Customers must reckon with delays of {days} days, above all for {goods}.",
            "Production of {goods} has been moved to {town2} for the time being.",
            "Neighbours in {street} brought {soup} to the pickets, and a brass band played until it rained.",
        ),
        (
            "The plant in {town} makes {goods} and is the largest employer in {region}.",
            "{company} had taken over the site in {year}, when {jobs} of its jobs were already lost.",
            "The last collective agreement ran out at the end of {month}.",
            "In the same industry {union} had reached {percent2} per cent in {town2} earlier this year.",
        ),
        (
            "Both sides meet again on {weekday2} in a hotel in {town2}, this time with a mediator.",
            "The mediator, the former judge {judge}, has asked both sides not to give interviews.",
            "If there is no result by {weekday2}, {union} [wants|want] to ballot on an indefinite strike.",
            "The mayor offered the town hall for further talks and received no answer on {weekday}.",
        ),
    ),
    extras=(
        "Towards midnight the parties agreed to go on talking: {judge}, who mediates, announced that the question of {issue} would be taken out of the agreement and settled by a commission within {days} days.",
        "A group of {count} temporary workers joined the pickets in the afternoon, although they are not members; the agency that employs them said that it would not [object|stand in the way].",
        "The supplier park next door sent {jobs} people home because its conveyor belts deliver straight into {hall}, and the transport association of {region} asked for a limit to the action.",
    ),
    doubles=(0, 3, 4),
    pools=_COMPANY
    | {
        "issue": ("night work", "holiday pay", "shorter hours", "the closure of the canteen", "Sunday shifts", "pensions", "overtime", "job security", "agency work"),
        "union": ("the metalworkers' union", "the food workers' union", "the transport union", "the chemical workers' union", "the general workers' union"),
        "hall": ("hall three", "the paint shop", "the assembly hall", "the foundry", "the packing hall", "the warehouse", "the finishing shop"),
        "goods": ("gearboxes", "yoghurt", "paper rolls", "window frames", "car seats", "ball bearings", "chocolate", "syringes", "ship's doors", "bricks"),
        "soup": ("pea soup", "tea and cake", "soup and blankets", "sandwiches", "coffee", "firewood"),
    },
    ranges={
        "staff": (120, 4200), "hours": (7, 48), "percent": (5, 12), "percent2": (2, 4), "months": (12, 36), "bonus": (250, 2000),
        "count": (24, 460), "share": (61, 97), "years": (6, 34), "pay": (1650, 3120), "jobs": (30, 700), "loss": (80, 990),
        "km": (2, 9), "days": (3, 21),
    },
)  # fmt: skip

DESK = Desk("business", (RESULTS, STRIKE), POOLS)
