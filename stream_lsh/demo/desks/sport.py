"""Sport: matches and races."""

# ruff: noqa: E501
from __future__ import annotations

from stream_lsh.demo.desks.names import POOLS
from stream_lsh.demo.story import Desk, Topic

MATCH = Topic(
    headlines=(
        "Late {scorer.last} goal sinks {team2}",
        "{team} [leave it late|fight back] against {team2}",
        "{scorer.last} double sends {team} through",
        "Ten-man {team} hold on in {town}",
    ),
    leads=(
        "a goal by {scorer} in the {minute} minute gave {team} a [narrow|deserved|lucky] win over {team2} in front of {crowd} spectators on {weekday}.",
        "{team} [came from behind|recovered from a poor start] to beat {team2} on {weekday}, with {scorer} scoring twice after the interval.",
        "{team} moved up to {place} place on {weekday} after a [scrappy|breathless|bad-tempered] match against {team2} that was settled by {scorer}.",
        "reduced to ten players after a red card in the {minute} minute, {team} still took the points from {team2} through a goal by {scorer}.",
    ),
    parts=(
        (
            "The visitors had the better of the first half and hit the post through {winger} after {early} minutes.",
            "It took {early} minutes until the first shot on target, a free kick by {winger} that the goalkeeper turned round the post.",
            "{winger} had opened the scoring in the {early2} minute when the defence failed to clear a corner.",
            "Rain had turned the pitch in {town} into a bog, and passes of more than {metres} metres rarely arrived.",
        ),
        (
            "Goalkeeper {keeper} kept the hosts in the match with {saves} saves, the best of them from {metres} metres.",
            "{keeper}, playing a first match since a knee operation in {month}, saved a penalty.",
            "A back pass that slipped under the foot of goalkeeper {keeper} made it level.",
            "The referee consulted the screen for {wait} minutes before sending off {keeper} for a tackle near the touchline.",
        ),
        (
            "The winner came when {sub}, on as a substitute, [beat|got past] two defenders and crossed from the left.",
            "{scorer.last} met a corner from {sub} at the near post and headed in off the bar.",
            "A long throw by {sub} caused confusion, and {scorer.last} [was quickest|reacted first].",
            "{sub} won the ball in midfield, ran {metres} metres and left the finish to {scorer.last}.",
        ),
        (
            "\"We were [awful|dreadful] for half an hour and then remembered what we had trained,\" said coach {coach}.",
            "Coach {coach} praised the \"patience of a team that has learnt to suffer\".",
            "\"I would have taken a point at half-time,\" {coach}, the winning coach, admitted.",
            "\"Tonight we celebrate, tomorrow we talk about the first half,\" said {coach}, who has been in charge since {month}.",
        ),
        (
            "The other coach, {loser}, [complained about|questioned] a penalty that was not given: \"Everyone in the ground saw it.\"",
            "\"We gave the match away, nobody took it from us,\" said {loser}, coach of {team2}.",
            "For {team2} it was the {nth} defeat in a row, and {loser} was booed on the way to the tunnel.",
            "{loser}, whose contract with {team2} ends in {month}, left without speaking to reporters.",
        ),
        (
            "{team} now have {points} points and travel to {town2} on {weekday2}.",
            "{scorer.last} has scored {goals} times this season, more than anyone else in the division.",
            "The two sides meet again in the cup on {weekday2}.",
            "Both teams are without a fixture until the {day}th, when the national side has played.",
        ),
    ),
    extras=(
        "The club announced in the evening that {sub} will be out for {out} weeks with a torn muscle fibre; the examination in {town2} showed that an operation is not needed.",
        "The association said on the following day that it had received a protest from {team2}, who claim that a substitution in the {early2} minute was not reported to the fourth official.",
        "Away supporters were kept in the ground for {wait} minutes after the final whistle because a goods train blocked the crossing at {street}; the police counted no incidents.",
    ),
    doubles=(5,),
    pools={
        "team": tuple(f"{place} {kind}" for place in ("Ashford", "Bramley", "Calder", "Dunmere", "Eastleigh", "Fairwick", "Harrow Dale", "Ings", "Kelmouth", "Langton", "Marlow", "Norby", "Penfield", "Ramsey", "Sandmouth", "Thornbury", "Wendham", "Woolton") for kind in ("Rovers", "Athletic", "United", "Town")),
        "minute": tuple(f"{number}th" for number in range(64, 90) if number % 10 not in (1, 2, 3)),
        "early2": tuple(f"{number}th" for number in (*range(4, 21), *range(24, 31), *range(34, 41))),
        "place": ("second", "third", "fourth", "fifth", "sixth", "eighth", "ninth", "eleventh"),
        "nth": ("second", "third", "fourth", "fifth", "sixth"),
        "day": tuple(str(number) for number in (*range(4, 21), *range(24, 31))),
    },
    ranges={
        "crowd": (1900, 48000), "early": (9, 38), "metres": (7, 45), "saves": (4, 11), "wait": (3, 55), "points": (14, 58),
        "goals": (6, 23), "out": (3, 12),
    },
)  # fmt: skip

RACE = Topic(
    headlines=(
        "{winner} wins {race} by {seconds} seconds",
        "Record day for {winner.last} in {race}",
        "{race}: {winner.last} takes the lead on the climb to {town}",
    ),
    leads=(
        "{winner} [won|has won] {race} on {weekday} after an attack {km} kilometres from the finish in {town}.",
        "with a [ride|performance] that surprised even the team's own staff, {winner} took {race} by {seconds} seconds ahead of {second}.",
        "{winner}, {age}, has set a record in {race}: nobody had covered the course between {town} and {town2} so fast since {year}.",
        "a fall on the wet cobbles of {town2} decided {race} on {weekday} and left {winner} alone in front.",
    ),
    parts=(
        (
            "A group of {group} had been away from the start and led by up to {lead} minutes.",
            "Crosswinds along the {river} split the field of {field} after only {km2} kilometres.",
            "The favourites watched one another until the last climb, which rises {metres} metres over {km} kilometres.",
            "It was {degrees} degrees at the start in {town2}, and {out} of the {field} starters did not reach the finish.",
        ),
        (
            "{second}, second in {year}, [could not answer|had nothing left] when the gap opened.",
            "On the descent {second} lost contact because of a puncture and chased alone for {km2} kilometres.",
            "{second} came within {gap} metres on the last hill and cracked in sight of the banner.",
            "Behind the winner {second} won the sprint of the chasing group ahead of {third}.",
        ),
        (
            "\"I heard nothing in the radio, so I just kept going,\" {winner.last} said.",
            "\"I have come {years} times to this race and never seen the front of it,\" said {winner.last}.",
            "\"My legs hurt [from|since] the first hour, and then I noticed that everyone's did,\" {winner.last} said at the finish.",
            "{winner.last} dedicated the victory to the first trainer, {trainer}, who died in {month}.",
        ),
        (
            "Sports director {manager} said that the plan had been drawn on a napkin at breakfast.",
            "\"On paper we were here to help others,\" said {manager}, who manages the team.",
            "The team's doctor, {manager}, had advised against a start after a cold.",
            "{manager}, head of a team with a budget of {budget} million euros, called it \"the cheapest win of the year\".",
        ),
        (
            "{third}, who had worn the leader's jersey for {days} days, dropped back to {place} place.",
            "The best young rider was {third} in {place} place, {seconds2} seconds behind.",
            "{third} was taken to hospital in {town2} with a broken collarbone.",
            "The commissaires fined {third} {fine} francs for taking a bottle in the closing kilometres.",
        ),
        (
            "Some {crowd} people stood along the course, most of them on the wall of {town}.",
            "The race has been held since {oldyear}, with interruptions.",
            "Next on the calendar is the time trial from {town} to {street} on {weekday2}.",
            "Overall {winner.last} now leads by {seconds2} seconds with {days2} stages to go.",
        ),
    ),
    extras=(
        "The jury revised the times in the evening: a timing mat in {street} had failed, so that {group} riders were credited with the time of the group in which they had entered the last kilometre.",
        "The organisers apologised for a van that had stopped on the course near {town2}; {second} and {third} had to unclip, but neither team lodged a complaint.",
        "Next year's course will leave out the descent that caused the falls, said the race director, {director}; the mayor of {town} has offered a finish on the market place instead.",
    ),
    doubles=(0, 5),
    pools={
        "race": ("the Tour of the Marches", "the Three Rivers Classic", "the Harbour Grand Prix", "the Round of Lindmark", "the Corran Hill Race", "the Coast to Coast", "the Autumn Monument", "the Silver Wheel", "the Fenland Crossing"),
        "place": ("fourth", "fifth", "seventh", "ninth", "twelfth", "fourteenth"),
    },
    ranges={
        "seconds": (4, 59), "seconds2": (11, 190), "km": (4, 38), "km2": (9, 70), "age": (20, 37), "group": (5, 14), "lead": (2, 9),
        "field": (96, 176), "metres": (180, 900), "degrees": (1, 34), "out": (9, 61), "gap": (15, 90), "years": (4, 11), "budget": (2, 19),
        "days": (2, 9), "days2": (2, 6), "fine": (100, 500), "crowd": (4000, 160000),
    },
)  # fmt: skip

DESK = Desk("sport", (MATCH, RACE), POOLS)
