"""Politics: budgets and votes, bills and hearings."""

# ruff: noqa: E501
from __future__ import annotations

from stream_lsh.demo.desks.names import POOLS
from stream_lsh.demo.story import Desk, Topic

BUDGET = Topic(
    headlines=(
        "{town} council passes budget after {hours}-hour debate",
        "{town} puts {money} million into {plan}",
        "Narrow vote in {town}: {plan} to be paid from reserves",
        "Council tax to rise by {percent} per cent in {town}",
    ),
    leads=(
        "councillors in {town} [approved|passed|voted through] a budget of {money} million euros on {weekday}, [ending weeks of dispute|after a debate of {hours} hours] over the cost of {plan}.",
        "{town} will spend {money} million euros on {plan} over the next {years} years, [the council decided|councillors agreed] late on {weekday}.",
        "by a majority of {votes} votes, the council of {town} has backed a spending plan that puts {plan} [ahead of|before] road repairs and new offices.",
        "a budget that raises local taxes by {percent} per cent and pays for {plan} was [adopted|carried] in {town} on {weekday} [against the votes of|over the objections of] the opposition.",
    ),
    parts=(
        (
            "The plan had been sent back to the finance committee twice since {month} because the figures for {plan} did not add up.",
            "{official}, who leads the largest group, [called it|described it as] \"the most honest set of accounts this chamber has seen since {year}\".",
            "Spending on {plan2} is cut by {percent2} per cent, and {count} posts in the administration will not be filled when their holders retire.",
            "The town borrows {loan} million euros for the purpose, at a rate that the treasurer, {treasurer}, said was fixed until the loan is repaid.",
        ),
        (
            "\"We can postpone {plan} for another year, but it will not be cheaper then,\" {official} told the [meeting|chamber|session].",
            "\"Nobody on this council was elected to close doors,\" said {official}. \"This vote keeps them open.\"",
            "\"There is nothing in here that we cannot pay for,\" {treasurer.last} [assured members|said], pointing to reserves of {loan} million euros.",
            "\"I have counted every line of it three times,\" the treasurer, {treasurer}, [said to laughter|told reporters].",
        ),
        (
            "The opposition [attacked|criticised] the increase as a burden on families; its leader, {critic}, said a household would pay {fee} euros more a year.",
            "{critic}, speaking for the opposition, [demanded|asked for] a list of all contracts above {fee} thousand euros and was told it would follow in {month}.",
            "Three members of the governing group abstained, among them {critic}, who had [campaigned|argued] for {plan2} instead.",
            "For the opposition {critic} moved {count} amendments, of which {votes} were accepted, most of them without a vote.",
        ),
        (
            "In the public gallery some {count} residents followed the session, many with placards from the campaign against cuts to {plan2}.",
            "A petition with {signatures} signatures had asked the council to [spare|protect] {plan2}.",
            "The chamber of commerce [welcomed|greeted] the decision; the union of municipal workers announced it would read the small print first.",
            "Parents' groups from {street} to {street2} had written to every councillor in the days before the vote.",
        ),
        (
            "{town} has {people} inhabitants and last raised its rates in {year}.",
            "The regional government must still approve the loan; it has {days} days to object.",
            "Similar plans failed in neighbouring {town2} in {year2}, when the contractor withdrew.",
            "An audit in {year3} had found that {percent2} per cent of the town's buildings needed urgent repair.",
        ),
        (
            "Work on {plan} could start in {season}, provided that the tender [attracts|brings] at least two bids.",
            "The council meets again on {weekday2}, when the timetable for {plan} is on the agenda.",
            "The first bills under the new rates go out in {month}.",
            "A progress report is due every {days} days, a condition on which the smaller parties had insisted.",
        ),
    ),
    extras=(
        "In a statement released after the meeting, {critic} announced a legal review of the vote, saying that the documents on {plan} had reached members less than {hours} hours before the session began.",
        "The mayor's office later clarified that the {money} million euros include a grant of {loan} million from the regional development fund, which still has to be confirmed in writing.",
        "Residents can inspect the full budget at the town hall in {street} until the end of {month2}; objections must be submitted in writing and will be answered individually.",
    ),
    doubles=(0, 3, 4),
    pools={
        "plan": (
            "a new primary school", "the restoration of the old theatre", "flood walls along the river", "a tram extension",
            "the public swimming pool", "electric buses", "a fire station in the east of the town", "social housing",
            "the repair of the harbour wall", "a sports hall", "broadband in the outer villages", "a second health centre",
            "street lighting", "the central library", "cycle paths to the industrial estate", "four new kindergartens",
        ),
    },
    ranges={
        "money": (12, 480), "hours": (3, 14), "percent": (2, 9), "percent2": (11, 48), "years": (2, 7), "votes": (2, 19),
        "count": (21, 340), "loan": (3, 95), "fee": (24, 310), "signatures": (1100, 19800), "people": (8200, 312000),
        "days": (14, 90),
    },
)  # fmt: skip

BILL = Topic(
    headlines=(
        "Committee clears bill on {matter} for second reading",
        "Government and opposition clash over {matter}",
        "Minister {minister} defends new rules for {matter}",
        "New law on {matter} could take effect in {month}",
    ),
    leads=(
        "a bill that would [tighten|rewrite|overhaul] the rules for {matter} cleared the {committee} committee on {weekday} by {votes} votes to {votes2}.",
        "the minister responsible for {matter}, {minister}, has defended the government's draft law [against criticism from|after objections by] {group}.",
        "parliament will debate new rules for {matter} in {month}, after {committee} committee members settled their differences [in a night session|in closed talks] on {weekday}.",
        "{group} have [called on|urged] the government to withdraw its bill on {matter}, which goes to a second reading on {weekday}.",
    ),
    parts=(
        (
            "Under the draft, {firms} companies would have to register by {month2} and pay a fee of {fee} euros a year.",
            "The text of {pages} pages replaces regulations from {year}, which courts had found [unclear|incomplete] in {cases} cases.",
            "At its core the bill moves responsibility for {matter} from the regions to a national office with a staff of {staff}.",
            "Violations would cost up to {fine} thousand euros, [twice|three times|four times] as much as today.",
        ),
        (
            "\"This is about confidence,\" {minister.last} said. \"People [want to know|must be able to see] who decides, and on what grounds.\"",
            "\"We listened for {weeks} weeks and changed {changes} clauses,\" {minister} told the committee. \"Now it is time to decide.\"",
            "\"A rule that nobody can check is not a rule,\" the minister, {minister}, said in an interview with regional newspapers.",
            "Officials in the department of {minister.last} put the cost to the taxpayer at {money} million euros in the first year.",
        ),
        (
            "The opposition's spokesperson, {critic}, [called the bill|spoke of] \"a filing cabinet with a law attached\".",
            "{critic}, who chairs the parliamentary group of the second largest party, warned of delays of up to {weeks} weeks for small firms.",
            "\"The government has answered a question that no one asked,\" said {critic}, whose party [wants|prefers] a voluntary code.",
            "Even within the coalition there is unease: {critic} said that {members} members might vote against their own minister.",
        ),
        (
            "{expert}, who teaches public law in {town}, considers the draft sound but [expects|predicts] a dispute over transitional periods.",
            "A study by {expert} of the institute for administration in {town} had estimated that {percent} per cent of applications are decided late.",
            "According to {expert}, a former judge, comparable laws abroad have reduced complaints by {percent} per cent within {years} years.",
            "The association of towns wants compensation; its director, {expert}, put the additional work at {staff} full-time posts.",
        ),
        (
            "An earlier attempt to regulate {matter} had failed in {year2} when the upper house withheld its consent.",
            "The debate about {matter} began after irregularities came to light in {town2} in {year3}.",
            "In opinion polls {percent} per cent of those questioned support stricter rules, and {percent2} per cent have no view.",
            "The coalition had promised the law in its agreement of {year4}, then postponed it {changes} times.",
        ),
        (
            "If the second reading goes as planned, the upper house will take up the bill in {month2}.",
            "The government [hopes|intends] to have the law in force by {season}.",
            "A final vote is [expected|scheduled] for {weekday2}, with {members} speakers on the list.",
            "The committee will hear {changes} more witnesses before it writes its report.",
        ),
    ),
    extras=(
        "Late in the evening {group} published a joint letter with {members} signatories that asks the coalition to separate the rules on fees from the rest of the bill and to vote on them after the recess.",
        "A spokesperson for {minister.last} said that the ministry would publish all {cases} submissions it had received, including those of individual citizens, with names removed where requested.",
        "The upper house signalled that it will insist on changes: {region} and two other regions regard the planned national office as an intrusion into their powers and have asked for mediation.",
    ),
    doubles=(0, 4),
    pools={
        "matter": (
            "short-term rentals", "private security firms", "food labelling", "drone flights", "water rights", "online pharmacies",
            "apprenticeships", "fishing quotas", "party donations", "parcel delivery", "school inspections", "night trains",
            "organ donation", "building permits", "energy advice", "lobbying", "animal transport", "second-hand cars",
        ),
        "committee": ("interior", "legal affairs", "economic", "transport", "health", "agriculture", "budget", "consumer"),
        "group": (
            "consumer groups", "small business owners", "the trade unions", "the regional premiers", "environmental associations",
            "data protection officers", "tenants' associations", "rural mayors", "church organisations",
        ),
    },
    ranges={
        "votes": (14, 31), "votes2": (5, 13), "firms": (140, 9800), "fee": (40, 900), "pages": (34, 260), "cases": (12, 190),
        "staff": (45, 620), "fine": (10, 500), "weeks": (4, 26), "changes": (3, 17), "money": (4, 88), "members": (5, 44),
        "percent": (23, 71), "percent2": (8, 21), "years": (2, 8),
    },
)  # fmt: skip

DESK = Desk("politics", (BUDGET, BILL), POOLS)
