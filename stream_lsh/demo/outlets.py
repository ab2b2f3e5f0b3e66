"""The papers and sites of the demo, all made up, with the boilerplate that they put around a story."""

# ruff: noqa: E501
from __future__ import annotations

from dataclasses import dataclass

from stream_lsh.demo.story import Desk, Topic


@dataclass(frozen=True)
class Outlet:
    """Who prints a story; `header` and `footer` stand around what it takes over from others, `credit` under its own."""

    key: str
    language: str
    credit: str
    header: str = ""
    footer: str = ""


AGENCY = Outlet("nordwire", "en", "")
ENGLISH = (
    Outlet("gazette", "en", "The Gazette, news desk", "From our partners.", "You can change your newsletter preferences at any time in your account."),
    Outlet("herald", "en", "Copyright: the Harbour Herald", "Read aloud by the Harbour Herald.", "Sign up for our morning briefing and never miss a story."),
    Outlet("courier", "en", "Courier staff", "Story provided by an agency.", "The Courier is not responsible for the content of external pages. All rights reserved."),
    Outlet("today", "en", "More on this story later", "Just in:", "Do you know more? Write to the newsroom; we protect our sources."),
    Outlet("valley-post", "en", "Valley Post, local since 1904", "", "This article is free to read thanks to the members of the Valley Post."),
    Outlet("daily-brief", "en", "The Daily Brief", "Three minutes to read.", "Was this article helpful? Yes. No. Share it with your friends and colleagues."),
)  # fmt: skip
OTHERS = (
    Outlet("tagblatt", "de", "Aus der Lokalredaktion", "", ""),
    Outlet("rundschau", "de", "Rundschau, Regionales", "Mit Material der Agenturen.", "Abonnieren Sie unseren Newsletter am Morgen."),
    Outlet("depeche", "fr", "La rédaction", "", ""),
    Outlet("quotidien", "fr", "Le Quotidien, édition locale", "Avec les agences.", "Inscrivez-vous à notre lettre du matin."),
    Outlet("diario", "es", "Redacción de deportes", "", ""),
    Outlet("noticias", "es", "Noticias del día", "Con información de agencias.", "Suscríbase a nuestro boletín de la mañana."),
    Outlet("chenbao", "zh", "本报记者报道", "", ""),
    Outlet("xinwen", "zh", "新闻网综合", "来源：晨报", "更多新闻请关注我们的客户端。"),
    Outlet("asahi-machi", "ja", "地域報道部", "", ""),
    Outlet("shinpo", "ja", "新報デジタル", "配信記事", "会員登録は無料です。"),
    Outlet("sabah", "ar", "مكتب التحرير", "", ""),
    Outlet("akhbar", "ar", "أخبار اليوم", "نقلًا عن الوكالات", "اشترك في نشرتنا الصباحية مجانًا"),
    Outlet("prabhat", "hi", "संवाददाता", "", ""),
    Outlet("samachar", "hi", "समाचार डेस्क", "एजेंसियों के सहयोग से", "ताज़ा खबरों के लिए हमारा ऐप डाउनलोड करें।"),
)  # fmt: skip

# Notices: a few words of their own inside a form that is always the same.
NOTICES = (
    Topic(
        headlines=("Road closure: {street}, {town}", "Traffic notice for {town}"),
        leads=(
            "{street} in {town} will be closed between {street2} and {street3} from {day} {month} because of {works}. A diversion by way of {street4} is signposted, {buses} bus stops are moved, and deliveries are possible until {hour} in the morning. Contact on site: {person}.",
            "because of {works} only one lane of {street} in {town} is open from {day} {month}, controlled by lights. The work is carried out by a firm from {town2} and takes {days} days; buses {buses} and {buses2} leave from {street2}. Questions are answered by {person}.",
        ),
        parts=(("Drivers are asked to allow for more time, to follow the signs on site and to park outside the marked area. Vehicles that block the work will be towed away at the expense of the keeper. Access for rescue services is guaranteed at all times. The county's road office regrets any inconvenience.",),),
        extras=(),
        doubles=(),
        pools={"works": ("work on the gas mains", "resurfacing", "a crane that has to be set up", "the laying of data cables", "a film crew", "repairs to the tram tracks", "tree surgery", "a burst pipe"), "hour": ("seven", "eight", "nine", "ten")},
        ranges={"day": (1, 28), "days": (2, 40), "buses": (2, 19), "buses2": (20, 49)},
    ),
    Topic(
        headlines=("Market report: {goods}, {direction}", "{goods}: price {direction} on {weekday}"),
        leads=(
            "the price of {goods} for delivery in {month} closed {direction} at {price} euros a tonne on {weekday}, after {price2} the day before. Dealers in {town} spoke of {mood} and a turnover of {lots} lots; the stocks in {town2} stood at {stock} tonnes.",
            "on the exchange in {town} the price of {goods} was {direction} on {weekday}: {price} euros a tonne were paid for {month}, {price3} for {month2}. {mood} and {stock} tonnes in the warehouses of {town2} set the tone; {lots} contracts changed hands.",
        ),
        parts=(("All figures without guarantee. Prices are those of the last trade and are delayed by at least fifteen minutes. This report is not investment advice and does not take the circumstances of any reader into account. Past performance is no guide to the future. Reproduction only with the written consent of the exchange.",),),
        extras=(),
        doubles=(),
        pools={"goods": ("wheat", "barley", "copper", "rapeseed", "wood pellets", "sugar", "scrap iron", "skimmed milk powder", "hops"), "direction": ("firmer", "weaker", "unchanged", "higher", "lower"), "mood": ("thin trading", "covering purchases", "rain in the growing areas", "a strike in the ports", "profit taking", "hopes of exports")},
        ranges={"price": (110, 940), "lots": (90, 7000), "stock": (2000, 98000)},
    ),
)  # fmt: skip
COUNTY = Outlet("notices", "en", "")


def notice_desk(pools: Desk) -> Desk:
    """The desk of the notices, with the names of another desk."""
    return Desk("notices", NOTICES, pools.pools)
