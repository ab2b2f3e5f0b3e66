"""Culture: exhibitions and concerts, prizes."""

# ruff: noqa: E501
from __future__ import annotations

from stream_lsh.demo.desks.names import POOLS
from stream_lsh.demo.story import Desk, Topic

SHOW = Topic(
    headlines=(
        "{venue} shows {works} by {artist}",
        "{artist.last} returns to {town} with {works}",
        "{visitors} visitors for {works} in {town}",
    ),
    leads=(
        "{venue} in {town} [is devoting|devotes] its {time} exhibition to {artist}, whose {works} have not been [seen together|shown in one place] since {year}.",
        "with {pieces} {works} by {artist}, {venue} in {town} [opens|opened] its new rooms on {weekday}.",
        "more than {visitors} people have [seen|visited] the {works} of {artist} in {town}; {venue} has now [extended|prolonged] the exhibition until {month}.",
    ),
    parts=(
        (
            "The {works} come from {lenders} collections, {some} of them private, and have been insured for {money} million euros.",
            "Most of the {works} were made in a shed on the {river} between {year} and the artist's move to {town2}.",
            "At the centre hangs a group of {some} early {works} that were thought lost until a clear-out in {town2}.",
            "The tour leads through {rooms} rooms, from grey to yellow, and ends in front of an empty wall.",
        ),
        (
            "\"You have to stand close enough to be told off,\" said the curator, {curator}.",
            "{curator}, who put the show together over {years} years, calls the {works} \"letters to nobody in particular\".",
            "The director of the house, {curator}, had written {letters} letters to persuade the lenders.",
            "\"We left the scratches in,\" said the restorer {curator}, who spent {months} months on a single piece.",
        ),
        (
            "{artist.last}, born in {town2} as the child of a {trade}, came to art by way of a broken leg.",
            "The artist, who learnt the trade of a {trade}, does not give interviews and stayed away from the opening.",
            "\"I never finish anything, I only stop,\" {artist.last} had said in {year}.",
            "{artist.last} taught in {town} for {years} years and painted at night in the boiler room.",
        ),
        (
            "The critic {critic} [praised|admired] the light and wished for fewer labels.",
            "\"Half of it would have been twice as much,\" wrote {critic} in the weekend paper.",
            "{critic}, who edits the catalogue, sees a debt to the etchings of the old masters.",
            "For {critic} of the art academy in {town2} the late {works} are \"the best that has been done in {region} for a generation\".",
        ),
        (
            "School classes are admitted free of charge; {classes} have booked.",
            "On {weekday2}s the rooms stay open until ten, with a bar and a string trio.",
            "The café serves the plum cake that {artist.last} is said to have lived on.",
            "A catalogue of {pages} pages costs {price} euros.",
        ),
        (
            "The show runs until {day} {month2} and then goes to {town2}.",
            "Next year {venue} turns to photography from {region}.",
            "The building, a former {building}, was rebuilt for {money2} million euros and reopened in {year}.",
            "The friends of the museum hope to keep at least {some} of the {works} in {town}.",
        ),
    ),
    extras=(
        "A visitor recognised the person in one of the portraits on {weekday2}: it is {sitter}, a midwife from {town2}, as a photograph in the family album shows; the label will be changed.",
        "Because of the crowds, tickets are now sold for fixed times; the house advises people to come before eleven, and has added a late evening on {weekday2}.",
        "The estate of {artist.last} has announced that it will give {some} more {works} to {venue}, which had asked for them in vain for {years} years.",
    ),
    pools={
        "venue": ("the Municipal Gallery", "the House of Arts", "the Granary Museum", "the Harbour Museum", "the Kunsthalle", "the Old Waterworks", "the Print Cabinet", "the Castle Museum"),
        "works": ("woodcuts", "landscapes", "sculptures", "tapestries", "portraits", "drawings", "glass paintings", "photographs", "collages", "ceramics"),
        "time": ("spring", "summer", "autumn", "winter"), "trade": ("saddler", "lock keeper", "baker", "tailor", "miner", "stonemason", "midwife", "clockmaker"),
        "building": ("tram depot", "brewery", "prison", "spinning mill", "slaughterhouse", "grain store", "indoor market"),
    },
    ranges={
        "visitors": (2400, 96000), "pieces": (24, 190), "lenders": (5, 46), "some": (3, 17), "money": (3, 70), "money2": (4, 39), "rooms": (4, 14),
        "years": (3, 29), "letters": (24, 300), "months": (3, 20), "classes": (11, 140), "pages": (96, 480), "price": (19, 64), "day": (2, 28),
    },
)  # fmt: skip

PRIZE = Topic(
    headlines=(
        "{prize} goes to {winner}",
        "{winner} wins {prize} for \"{title}\"",
        "\"A {adjective} book\": {winner.last} takes {prize}",
    ),
    leads=(
        "{prize}, worth {money} thousand euros, goes to {winner} for the {form} \"{title}\", the jury [announced|said] in {town} on {weekday}.",
        "the {form} \"{title}\" has won {winner} {prize}; the [award|prize] will be presented in {town} in {month}.",
        "{winner} has been [awarded|given] {prize} for a {form} that {publishers} publishers had turned down.",
    ),
    parts=(
        (
            "\"A {adjective} book that trusts its readers\", the jury wrote in its statement of {pages} lines.",
            "The jury, chaired by {chair}, read {entries} submissions and needed {hours} hours for its decision.",
            "{chair}, who spoke for the jury, praised a language \"that does without a single exclamation mark\".",
            "It was a {adjective} choice, said {chair} of the jury, and a unanimous one.",
        ),
        (
            "The {form} tells of a {hero} in {town2} who [finds|inherits] a suitcase full of unposted letters.",
            "It is set in a railway hotel on the {river}, in the last winter before the line closes.",
            "On {pages} pages a {hero} tries to find out who has been paying the rent for {years} years.",
            "The story begins in {street} in {town2} with a {hero} who stops speaking and ends, {years} years later, with a telephone call.",
        ),
        (
            "\"I was repairing the gutter when they rang,\" {winner.last} said.",
            "{winner.last}, {age}, works as a {job} and writes between five and seven in the morning.",
            "\"Now I shall have to answer my post,\" said {winner.last}, who lives without a telephone in {region}.",
            "{winner.last} had put the manuscript in a drawer in {year} and forgotten about it.",
        ),
        (
            "The publisher, {publisher}, [has ordered|ordered] a new print run of {copies} copies.",
            "So far {copies} copies have been sold; translations into {languages} languages are in preparation.",
            "\"We printed it because nobody else would,\" said {publisher}, who runs a publishing house with {staff} employees in {town2}.",
            "The reviewer {publisher} found the ending too neat and the middle perfect.",
        ),
        (
            "The prize has been awarded since {oldyear}, at first in kind: the winner received a barrel of wine.",
            "Last year it had gone to {former} for a volume of essays.",
            "Also on the short list were {former} and three first books.",
            "Among earlier winners is {former}, who gave the speech this year.",
        ),
        (
            "The ceremony takes place in the town hall of {town} on {day} {month2}.",
            "{winner.last} reads from the book on {weekday2} in the library in {street}; admission is free.",
            "A film version is under discussion.",
            "The next {form}, {winner.last} says, will be shorter and have a dog in it.",
        ),
    ),
    extras=(
        "Bookshops in {town} reported on {weekday2} that \"{title}\" had sold out within {hours} hours; the publisher expects new copies by the end of the week.",
        "A member of the jury, {member}, has contradicted reports of a quarrel: there had been a second ballot because one voting slip had fallen behind the radiator.",
        "The town of {town2}, in which the book is set, has invited {winner.last} to sign the visitors' book, although it does not come off well in the {form}.",
    ),
    doubles=(3, 5),
    pools={
        "prize": ("the Lantern Prize", "the Marches Book Award", "the Prize of the Free Libraries", "the Silver Inkwell", "the Lindmark Prize", "the Readers' Prize", "the Harbour Award for Fiction", "the Critics' Circle Prize"),
        "title": ("The Weight of Rain", "A Short Winter", "Ferrymen", "What the Gauge Said", "Salt and Timetables", "The Borrowed Coat", "Eleven Doors", "Uphill, Mostly", "The Lamp Room", "Low Water", "An Inventory of Bells", "The Second Cousin"),
        "form": ("novel", "collection of stories", "long poem", "memoir", "novella"), "adjective": ("quiet", "daring", "tender", "precise", "wilful", "luminous", "stubborn"),
        "hero": ("signalman", "piano tuner", "surveyor", "pharmacist", "night nurse", "beekeeper", "retired diver", "court stenographer"),
        "job": ("bus driver", "vet", "land surveyor", "school caretaker", "cheesemaker", "tax adviser", "lock keeper"),
    },
    ranges={
        "money": (5, 50), "publishers": (4, 31), "pages": (88, 640), "entries": (64, 480), "hours": (2, 30), "years": (7, 45), "age": (27, 81),
        "copies": (1200, 60000), "languages": (3, 19), "staff": (2, 14), "day": (2, 28),
    },
)  # fmt: skip

DESK = Desk("culture", (SHOW, PRIZE), POOLS)
