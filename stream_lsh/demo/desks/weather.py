"""Weather: storms, and heat or frost on the land."""

# ruff: noqa: E501
from __future__ import annotations

from stream_lsh.demo.desks.names import POOLS
from stream_lsh.demo.story import Desk, Topic

STORM = Topic(
    headlines=(
        "{hazard} in {region}: {calls} emergency calls in one night",
        "{town} clears up after {hazard}",
        "{homes} homes without power after {hazard}",
    ),
    leads=(
        "{hazard} [caused damage|left a trail of damage] across {region} in the night to {weekday}; the fire brigades [counted|registered] {calls} calls.",
        "about {homes} households in and around {town} were without electricity on {weekday} after {hazard} [swept|moved] across {region}.",
        "{town} [began clearing up|took stock] on {weekday} after {hazard} that surprised even the forecasters.",
        "the weather service has warned of {hazard} in {region} until the early hours of {weekday}, with gusts of up to {speed} kilometres an hour.",
    ),
    parts=(
        (
            "In {street} a lime tree [fell|crashed] onto {cars} parked cars; nobody was hurt.",
            "The roof of the gym in {street} was torn off and landed {metres} metres away on the school's bicycle shed.",
            "On the {river} a barge broke loose and drifted {km} kilometres before it ran aground.",
            "Hailstones of {cm} centimetres smashed the panes of the nursery in {street}, about {panes} of them.",
        ),
        (
            "\"It [sounded|was] like a train that does not stop,\" said {resident}, who lives in {street}.",
            "\"We stood in the cellar with torches and counted the thunder,\" the baker {resident} said.",
            "{resident}, who keeps bees at the edge of {town}, lost {hives} hives.",
            "\"In {years} years I have not seen the {river} like this,\" said {resident}, a ferryman.",
        ),
        (
            "{helpers} firefighters were out until dawn, supported by the technical relief service with {pumps} pumps.",
            "Fire chief {chief} praised the neighbours who had freed drains with their own hands.",
            "\"The worst was that everyone called at the same time,\" said {chief}, who runs the control room.",
            "{chief} of the district administration put the damage at {money} million euros, \"and that is only what we have seen\".",
        ),
        (
            "Trains between {town} and {town2} did not run until noon because branches lay in the overhead line.",
            "The road along the {river} remains closed for {days} days; a detour of {km} kilometres is signposted.",
            "Schools in {town2} stayed closed, and {buses} bus routes were suspended.",
            "The ferry stopped running at a water level of {level} centimetres.",
        ),
        (
            "At the weather station on {street} {rain} litres of rain a square metre fell within {hours} hours.",
            "The gauge in {town} showed {level} centimetres at midnight, the highest value since {year}.",
            "Gusts reached {speed} kilometres an hour on the hills above {town2}.",
            "The service had put out a warning at the second of four levels at {hours} o'clock in the afternoon.",
        ),
        (
            "For {weekday2} the meteorologist {expert} expects [more showers|drier air] and {degrees} degrees.",
            "\"The next front arrives on {weekday2}, but it has less energy,\" said {expert} of the weather service.",
            "Such nights have become more frequent, says the climatologist {expert}: {events} since {year}, as against {hives} in the decades before.",
            "According to {expert} of the regional forecast centre the soil can take no more than {rain2} litres now.",
        ),
    ),
    extras=(
        "In the afternoon the energy supplier reported that all but {cars} households were connected again; the last of them, in {street}, depend on a substation whose transformer has to be replaced.",
        "The district set up a telephone line for those affected and promised emergency aid of {fee} euros a household; forms are available at the town hall in {town} without an appointment.",
        "Insurers advised people to photograph damage before they clear up; the association in {region} received {calls2} reports by {weekday2} and expects about as many again.",
    ),
    doubles=(0, 3, 4),
    pools={
        "hazard": ("a severe thunderstorm", "a storm with heavy hail", "a line of squalls", "cloudbursts", "an autumn gale", "a short tornado", "freezing rain", "a snowstorm"),
    },
    ranges={
        "calls": (110, 1900), "calls2": (700, 9000), "homes": (900, 26000), "cars": (2, 40), "metres": (15, 120), "km": (2, 28), "cm": (2, 6),
        "panes": (120, 2400), "hives": (3, 14), "years": (20, 50), "helpers": (60, 800), "pumps": (8, 60), "money": (2, 45), "days": (2, 14),
        "buses": (3, 18), "level": (310, 870), "rain": (38, 140), "rain2": (5, 25), "hours": (2, 6), "speed": (85, 147), "degrees": (4, 21),
        "events": (16, 40), "fee": (300, 2500),
    },
)  # fmt: skip

HARVEST = Topic(
    headlines=(
        "growers of {crop} in {region} count losses after {spell}",
        "{region}: how {spell} changed the season for {crop}",
        "Early start for {crop} around {town}",
    ),
    leads=(
        "the harvest of {crop} around {town} will be about {percent} per cent [smaller|poorer] than usual because of {spell}, the growers' association said on {weekday}.",
        "after {spell} the growers of {region} are [picking|bringing in] their {crop} {days} days earlier than [last year|in an ordinary year].",
        "{spell} [cost|may have cost] the growers of {crop} in {region} some {money} million euros, according to a first estimate from {town}.",
    ),
    parts=(
        (
            "\"You can hear the leaves, they rustle like paper,\" said {grower}, who works {hectares} hectares near {town}.",
            "{grower} from {town2} [points|pointed] to a row of young plants: of {plants} set out in {month}, {dead} have died.",
            "\"We are used to bad years, but not to {years} in a row,\" the grower {grower} said.",
            "On the farm of {grower}, at the end of {street} in {town}, the sprinklers ran for {nights} nights without a break.",
        ),
        (
            "At the station in {town2} only {rain} millimetres of rain fell between {month} and {month2}, a third of the mean.",
            "Thermometers showed {degrees} degrees on {count} days, more often than in any year since {year}.",
            "The groundwater near the {river} stands {cm} centimetres lower than a year ago.",
            "{nights} nights brought ground frost, the last of them in the week in which the blossom opened.",
        ),
        (
            "Adviser {adviser} recommends late varieties and [hedges|strips of hedge] against the wind.",
            "\"Quality will make up for some of it,\" said {adviser} of the chamber of agriculture: the sugar content is at {sugar} per cent.",
            "{adviser}, who does research on {crop} in {town2}, is testing {varieties} varieties that need less water.",
            "The chairman of the association, {adviser}, asked for help with the insurance premiums, which have risen by {percent2} per cent.",
        ),
        (
            "Wholesalers pay {cents} cents a kilo at present, {cents2} more than a year ago.",
            "Shoppers must expect prices to rise by {percent2} per cent until {month}.",
            "The dairy and the cider press in {town2} buy what cannot be sold fresh, {tonnes} tonnes so far.",
            "A lack of pickers adds to the worries: {count} of {workers} seasonal workers did not come.",
        ),
        (
            "{region} [grows|produces] {share} per cent of the country's {crop}, on {hectares2} hectares.",
            "{crop} have been grown on the slopes of the {river} since {oldyear}.",
            "In {year} a similar spell had forced {farms} farms to give up.",
            "The festival of the harvest in {town}, held since {oldyear}, will go ahead all the same.",
        ),
        (
            "The ministry will decide on compensation of up to {fee} euros a hectare in {month2}.",
            "A storage basin for {volume} thousand cubic metres is to be built by {season}.",
            "If it rains before {weekday2}, {grower.last} says, a second crop is possible.",
            "The final figures will be known when the last lorry has been weighed, probably on {weekday2}.",
        ),
    ),
    extras=(
        "The water board of {region} has meanwhile banned pumping from streams between eight in the morning and eight in the evening; the {river} carried {litres} litres a second on {weekday}.",
        "An expert commission that toured {farms} farms at the weekend put the losses higher than the first estimate; its report goes to the ministry in {month2}, said {adviser.last}.",
        "Supermarkets in {town2} announced that they would sell smaller and blemished fruit under a label of their own, at {cents2} cents less a kilo, for as long as the season lasts.",
    ),
    doubles=(1, 3, 4),
    pools={
        "crop": ("apples", "cherries", "hops", "grapes", "plums", "strawberries", "pears", "asparagus spears", "potatoes", "walnuts", "pumpkins", "blackcurrants"),
        "spell": ("the late frost", "the long drought", "the wet spring", "weeks of heat", "the mild winter", "the hail of recent weeks"),
    },
    ranges={
        "percent": (12, 58), "percent2": (6, 31), "days": (6, 24), "money": (2, 60), "hectares": (7, 160), "hectares2": (400, 9000), "plants": (300, 5000),
        "dead": (60, 280), "years": (3, 5), "nights": (3, 12), "rain": (12, 49), "degrees": (31, 38), "count": (9, 38), "cm": (18, 130),
        "sugar": (11, 19), "varieties": (4, 32), "cents": (48, 390), "cents2": (8, 45), "tonnes": (14, 900), "workers": (60, 240),
        "share": (8, 43), "farms": (5, 60), "fee": (300, 2400), "volume": (20, 260), "litres": (140, 900),
    },
)  # fmt: skip

DESK = Desk("weather", (STORM, HARVEST), POOLS)
