"""Local: projects that residents argue about, and what the police report."""

# ruff: noqa: E501
from __future__ import annotations

from stream_lsh.demo.desks.names import POOLS
from stream_lsh.demo.story import Desk, Topic

PROJECT = Topic(
    headlines=(
        "{street} to get {thing}",
        "Neighbours divided over {thing} in {street}",
        "{town}: {thing} to open in {month}",
    ),
    leads=(
        "after {years} years of [planning|talk], {town} is to get {thing}: [work|building] in {street} starts in {month}.",
        "{thing} [opens|will open] in {street} in {town} on {weekday}, paid for in large part by donations.",
        "plans for {thing} in {street} have [divided|split] the neighbours in {town}; on {weekday} both sides [spoke|had their say] at the community centre.",
    ),
    parts=(
        (
            "The cost is put at {money} thousand euros, of which {donated} thousand have been collected by the residents themselves.",
            "The site of {area} square metres had stood empty since the {shop} closed in {year}.",
            "Opening hours will be from {hour} in the morning, except on {weekday2}s.",
            "It will have room for {places} people, a workshop and a roof planted with herbs.",
        ),
        (
            "\"My grandmother danced here, and now it is a car park,\" said {neighbour}, who started the initiative.",
            "{neighbour} of number {number} knocked on {doors} doors to collect signatures.",
            "\"Finally something for those who have no car,\" said {neighbour}, a retired teacher.",
            "The idea came from {neighbour}, a carpenter, who built a model of it out of {crates} fruit crates.",
        ),
        (
            "{opponent}, whose bedroom looks out on the yard, [fears|worries about] noise: \"Who closes the gate at night?\"",
            "Shopkeepers are less happy: {spaces} parking spaces will go, says {opponent}, who sells shoes at number {number}.",
            "\"I am not against it, I am against it here,\" said {opponent}.",
            "A lawyer's letter signed by {opponent} and {spaces} others asks for a wall {metres} metres high.",
        ),
        (
            "The head of the building department, {official}, promised trees in place of the {trees} that must be felled.",
            "\"We measured the noise on {days} days and found the church bells louder,\" {official} of the town hall said.",
            "Deputy mayor {official} pointed out that the plans had been on display for {days} days.",
            "According to {official}, who is responsible for green spaces, the soil has to be exchanged to a depth of {metres} metres.",
        ),
        (
            "A similar scheme in {town2} is used by about {visitors} people a week.",
            "In {town2} such a place had to close again after {years} winters for want of volunteers.",
            "The street has {residents} residents and so far neither a bench nor a bakery.",
            "The {shop} had been run by the same family since {oldyear}.",
        ),
        (
            "Those who want to help can come on {weekday2} at {hour} o'clock with gloves and a spade.",
            "The association is looking for {helpers} more volunteers and a piano.",
            "The opening will be celebrated with soup, a choir and a bicycle auction.",
            "Questions will be answered at the next residents' meeting on {day} {month2}.",
        ),
    ),
    extras=(
        "On {weekday2} the savings bank added {donated2} thousand euros to the donations, on condition that the roof is finished before the frost; {neighbour.last} said that the carpenters had already been asked.",
        "The town hall has since moved the residents' meeting to the gym of the school, because {places} people want to come and the community centre has only {spaces} chairs.",
        "Meanwhile {opponent.last} has withdrawn the objection after a visit to {town2}, where the neighbours, as it turned out, complain about the car park and not about the guests.",
    ),
    pools={
        "thing": (
            "a repair café", "a skate park", "a community garden", "a book exchange", "an open-air cinema", "a neighbourhood kitchen", "a playground for all ages",
            "a bicycle workshop", "a youth club", "a weekly market", "a boules court", "a toy library", "a day centre for the elderly", "a climbing wall",
        ),
        "shop": ("butcher's shop", "brewery", "petrol station", "post office", "cinema", "laundry", "dance hall", "printing works", "dairy"),
        "hour": ("eight", "nine", "ten", "eleven"),
    },
    ranges={
        "years": (3, 17), "money": (45, 980), "donated": (6, 44), "donated2": (5, 30), "area": (180, 4200), "places": (30, 220), "number": (2, 140),
        "doors": (90, 700), "crates": (4, 18), "spaces": (8, 29), "metres": (2, 5), "trees": (2, 12), "days": (10, 42), "visitors": (60, 900),
        "residents": (140, 2100), "helpers": (6, 40), "day": (2, 28),
    },
)  # fmt: skip

POLICE = Topic(
    headlines=(
        "Police look for owner of {loot}",
        "{town}: {loot} stolen from {scene}",
        "Thief returns {loot} after {days} days",
    ),
    leads=(
        "the police in {town} are looking for [witnesses|people who saw something] after {loot} disappeared from {scene} in {street} in the night to {weekday}.",
        "unknown persons broke into {scene} in {street} in {town} on {weekday} and took {loot} [worth|valued at] {value} euros.",
        "{loot}, stolen from {scene} in {town} in {month}, turned up {km} kilometres away in {town2}.",
        "an unusual find has puzzled the police in {town}: {loot} stood in front of {scene} in {street} on {weekday} morning, with a note.",
    ),
    parts=(
        (
            "The alarm [had been|was] switched off because of repairs; the door was opened with a key or a good copy.",
            "A camera across the street shows a white van that stopped for {minutes} minutes at about {hour} o'clock.",
            "The thieves came through the skylight and let themselves down {metres} metres on a fire hose.",
            "Nothing else was touched, although {cash} euros lay in an open drawer.",
        ),
        (
            "\"You cannot even sell it,\" said {victim}, who noticed the loss.",
            "{victim}, who has the key to the building, noticed it when the dog would not go in.",
            "\"I went back three times to make sure I was not dreaming,\" said {victim}, who works there.",
            "The caretaker, {victim}, had locked up at {hour2} and heard nothing.",
        ),
        (
            "Inspector {inspector} speaks of \"amateurs with good knowledge of the place\".",
            "\"We have {prints} fingerprints, most of them sticky,\" Inspector {inspector} said.",
            "According to {inspector} of the criminal police there were {cases} similar cases in {region} this year.",
            "{inspector}, who leads the inquiry, does not exclude a bet between friends.",
        ),
        (
            "A reward of {reward} euros has been offered by the owners.",
            "The insurance pays only if the original receipt from {year} is found.",
            "A walker found parts of the packaging on the bank of the {river} on {weekday2}.",
            "Officers questioned {people} neighbours and searched {garages} garages in {street2}.",
        ),
        (
            "In {year} the same place had been broken into for a barrel of cider.",
            "The building dates from {oldyear} and is to be renovated in {season}.",
            "In neighbouring {town2} a court had sentenced two brothers to {months} months for a theft of the same kind.",
            "It is the {nth} break-in within {weeks} weeks.",
        ),
        (
            "Information is taken by the police station in {street3} and by every other station.",
            "Witnesses who were in {street} between {hour} and {hour2} are asked to call.",
            "The public prosecutor will decide in {month} whether charges are brought.",
            "Until the matter is cleared up, a replacement is on loan from {town2}.",
        ),
    ),
    extras=(
        "On {weekday2} the police published a picture of a person in a yellow raincoat, taken at a petrol station near {town2}; the person is wanted as a witness, {inspector.last} stressed.",
        "The owners said in the evening that they would not press charges if {loot} came back undamaged, and that the key would from now on hang somewhere else.",
        "A tip from {town2} led to the search of a barn, where officers found {garages} bicycles and a church clock, but not what they were looking for, {inspector.last} said.",
    ),
    doubles=(4, 5),
    pools={
        "loot": (
            "a stuffed bear", "a ship's wheel", "two tubas", "a bronze otter", "the club's trophies", "a coin-operated telescope", "a neon sign", "a model railway",
            "twelve garden gnomes", "an espresso machine", "a carousel horse", "a collection of fountain pens", "the town crier's bell", "a marble bust",
            "a crate of old maps", "a stage curtain",
        ),
        "scene": ("the rifle club", "the school of music", "a hotel", "the local museum", "a brewery", "the fire station", "a café", "the parish hall", "the swimming club", "an antique shop"),
        "hour": ("two", "three", "four", "five"), "hour2": ("nine", "ten", "eleven"), "nth": ("second", "third", "fourth", "fifth"),
    },
    ranges={
        "value": (300, 9600), "km": (8, 140), "days": (3, 40), "minutes": (2, 25), "metres": (3, 9), "cash": (90, 2400), "prints": (3, 40), "cases": (4, 28),
        "reward": (100, 2000), "people": (9, 85), "garages": (4, 30), "months": (4, 22), "weeks": (3, 12),
    },
)  # fmt: skip

DESK = Desk("local", (PROJECT, POLICE), POOLS)
