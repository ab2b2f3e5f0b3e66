"""News in other languages and scripts, so that a user sees how the engine treats them."""

# ruff: noqa: E501
from __future__ import annotations

from stream_lsh.demo.story import Desk, Topic

_RANGES = {
    "people": (120, 9800), "years": (3, 28), "money": (2, 64), "percent": (6, 48), "count": (24, 860), "km": (3, 90), "days": (5, 60), "hour": (8, 20),
    "votes": (12, 46), "homes": (90, 2400), "metres": (12, 340), "fee": (15, 480), "jobs": (30, 640),
}  # fmt: skip
_YEARS = tuple(str(year) for year in range(1988, 2022))

GERMAN = Desk(
    "deutsch",
    (
        Topic(
            headlines=("{town} bekommt {thing}", "Streit um {thing} in {town}", "{thing}: {town} stimmt zu"),
            leads=(
                "Der Stadtrat von {town} hat am {weekday} nach {hours}-stündiger Debatte beschlossen, {money} Millionen Euro für {thing} auszugeben.",
                "{thing} in {town} [kommt|wird gebaut]: Mit {votes} Stimmen Mehrheit gab der Rat am {weekday} grünes Licht.",
                "Nach jahrelangem Hin und Her soll in {town} der Bau beginnen: Für {thing} sind {money} Millionen Euro vorgesehen, wie die Verwaltung am {weekday} mitteilte.",
            ),
            parts=(
                ("„Wir haben lange genug gewartet“, sagte {official} bei der Vorstellung der Pläne.", "{official}, im Rathaus für den Haushalt zuständig, sprach von einem guten Tag für die {people} Einwohner des Viertels.", "Der Entwurf stammt vom Büro {official} und setzte sich gegen {count} Mitbewerber durch."),
                ("Die Opposition kritisierte die Kosten, die seit {year} um {percent} Prozent gestiegen sind.", "Gegner haben {signatures} Unterschriften gesammelt und prüfen eine Klage vor dem Verwaltungsgericht.", "Aus der Opposition hieß es, das Geld fehle nun bei Schulen und Straßen."),
                ("{resident} wohnt seit {years} Jahren gegenüber und fürchtet vor allem den Baulärm.", "„Hauptsache, die Linden bleiben stehen“, meinte {resident}, die am Markt eine Buchhandlung führt.", "Die Anwohnerin {resident} hat ausgerechnet, dass {count} Parkplätze wegfallen."),
                ("Das Grundstück von {metres} Metern Länge gehörte bis {year} der Bahn.", "Die Arbeiten sollen in {days} Tagen beginnen und drei Jahre dauern.", "Während der Bauzeit wird der Verkehr über die Ringstraße umgeleitet."),
                ("Vom Land kommen {percent} Prozent der Summe, sofern der Bescheid bis {month} vorliegt.", "Finanziert wird das Vorhaben zur Hälfte über Kredite mit einer Laufzeit von {years} Jahren.", "Die Sparkasse der Stadt gibt {fee} Tausend Euro dazu."),
                ("Im {month} können Bürger die Unterlagen im Rathaus einsehen.", "Ein ähnliches Projekt im benachbarten {town2} war {year} am Denkmalschutz gescheitert.", "Der Rat befasst sich am {weekday2} noch einmal mit den Einzelheiten."),
            ),
            extras=("Am Abend teilte die Verwaltung mit, dass der Zeitplan um {days} Tage verschoben werde, weil bei Bohrungen eine alte Wasserleitung gefunden worden sei; die Kosten änderten sich dadurch nicht.", "Der Landkreis kündigte unterdessen an, für die Bauzeit zusätzliche Busse zwischen {town} und {town2} einzusetzen, die Fahrpläne hängen ab {month} aus."),
            doubles=(3, 4, 5),
            pools={"thing": ("das neue Hallenbad", "die Umgehungsstraße", "das Stadttheater", "die zweite Rheinbrücke", "das Klinikum am Ring", "die Gesamtschule", "das Radwegenetz", "die Feuerwache Ost", "das Museumsdepot")},
            ranges={"hours": (3, 9), "signatures": (1200, 9800)} | _RANGES,
        ),
    ),
    {
        "firstname": ("Anna", "Bernd", "Claudia", "Dirk", "Eva", "Friedrich", "Gisela", "Holger", "Jutta", "Kai", "Matthias", "Renate", "Stefan", "Ulrike", "Wolfgang"),
        "resident.first": ("Anna", "Birgit", "Claudia", "Eva", "Gisela", "Jutta", "Lena", "Monika", "Renate", "Ulrike"),
        "lastname": ("Albers", "Brinkmann", "Dietrich", "Engel", "Fuchs", "Grabowski", "Hoffmann", "Jürgens", "Kröger", "Lehmann", "Möller", "Neumann", "Petersen", "Reuter", "Schäfer", "Thiele", "Vogt", "Ziegler"),
        "town": ("Altenbrück", "Birkenau-Süd", "Dornfeld", "Eichstadt", "Grünwerder", "Hohenrode", "Kaltental", "Lindhausen", "Moorburg", "Neuhagen", "Oberweiler", "Steinfurth", "Waldkirch am See"),
        "weekday": ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag"), "month": ("Januar", "März", "April", "Mai", "Juni", "September", "Oktober", "November"), "year": _YEARS,
    },
    "de",
)  # fmt: skip

FRENCH = Desk(
    "français",
    (
        Topic(
            headlines=("Orages : {homes} foyers privés d'électricité autour de {town}", "À {town}, l'heure du bilan après les intempéries", "{town} sous l'eau après une nuit d'orages"),
            leads=(
                "De violents orages ont frappé la région de {town} dans la nuit de {weekday}, privant {homes} foyers d'électricité.",
                "Au lendemain des intempéries, les habitants de {town} [constatent|mesurent] les dégâts : {count} maisons ont été inondées, selon la préfecture.",
                "Les pompiers de {town} sont intervenus à {count} reprises dans la nuit de {weekday}, après des pluies d'une intensité rare.",
            ),
            parts=(
                ("« En {years} ans, je n'avais jamais vu la rivière monter aussi vite », raconte {resident}, qui tient le café de la place.", "{resident}, agricultrice à la sortie du bourg, a perdu {percent} % de sa récolte.", "« L'eau est entrée par les fenêtres », témoigne {resident}, réfugiée à l'étage avec ses voisins."),
                ("Le préfet {official} a salué le sang-froid des secours et demandé la reconnaissance de l'état de catastrophe naturelle.", "Le maire de la commune, {official}, estime les dégâts à {money} millions d'euros.", "Selon le commandant {official}, {jobs} pompiers étaient encore mobilisés à l'aube."),
                ("La route départementale reste coupée sur {km} kilomètres jusqu'à {weekday2}.", "La circulation des trains n'a repris qu'à {hour} heures entre {town} et {town2}.", "Une quinzaine d'écoles sont restées fermées dans le canton."),
                ("Il est tombé {metres} millimètres de pluie en quelques heures, l'équivalent de deux mois.", "La station de {town2} a enregistré des rafales à {wind} kilomètres à l'heure.", "Des grêlons gros comme des noix ont brisé les serres de la coopérative."),
                ("En {year}, une crue semblable avait fait deux blessés.", "Un plan de prévention avait pourtant été adopté en {year} ; les travaux n'ont jamais commencé.", "Les assureurs ont déjà reçu {people} déclarations."),
                ("Météo-France prévoit un temps plus calme à partir de {weekday2}.", "Une cellule d'accueil est ouverte à la salle des fêtes, où {people} repas ont été servis.", "Une collecte est organisée par la paroisse et le club de rugby."),
            ),
            extras=("Dans la soirée, le gestionnaire du réseau a annoncé que le courant était rétabli pour tous les abonnés, sauf dans {count} fermes isolées où des groupes électrogènes ont été installés.", "Le conseil départemental débloquera une aide d'urgence de {fee} euros par famille sinistrée, a précisé son président, qui se rendra sur place dans les {days} jours."),
            doubles=(3, 4, 5),
            ranges={"wind": (90, 145)} | _RANGES,
        ),
    ),
    {
        "firstname": ("Bruno", "Didier", "François", "Hervé", "Julien", "Luc", "Mathieu", "Pascal", "Thierry", "Yann"),
        "resident.first": ("Agnès", "Camille", "Élodie", "Gaëlle", "Inès", "Laure", "Noémie", "Sylvie"),
        "lastname": ("Aubert", "Blanchet", "Carpentier", "Delorme", "Esnault", "Fabre", "Girard", "Hamel", "Joly", "Lacroix", "Marchand", "Noël", "Perrin", "Roussel", "Tessier", "Vasseur"),
        "town": ("Aigremont-le-Vieux", "Beaulieu-sur-Orne", "Châtel-Guyonnet", "Fontvieille", "Grandpré", "La Roche-Bernardin", "Mirecourt-les-Bois", "Pontarlin", "Saint-Aubin-du-Lac", "Valmorel", "Villeneuve-la-Comté"),
        "weekday": ("lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"), "year": _YEARS,
    },
    "fr",
)  # fmt: skip

SPANISH = Desk(
    "español",
    (
        Topic(
            headlines=("El {team} gana en {town} con un gol de {scorer.last}", "{scorer.last} rescata al {team}", "El {team} vuelve a soñar"),
            leads=(
                "El {team} se impuso el {weekday} en el campo de {town} gracias a un gol de {scorer} en el minuto {minute}.",
                "Un tanto de {scorer} a falta de {left} minutos dio al {team} una victoria que lo mantiene en la lucha por el ascenso.",
                "Cuando nadie lo esperaba apareció {scorer}: su gol en el minuto {minute} decidió un partido áspero entre el {team} y el conjunto de {town}.",
            ),
            parts=(
                ("El encuentro comenzó con dominio local y un disparo al poste de {rival} a los {early} minutos.", "{rival} había adelantado al equipo de casa tras un error en la salida del balón.", "La lluvia dejó el césped pesado y apenas hubo ocasiones hasta el minuto {early}, cuando {rival} remató fuera."),
                ("El portero {keeper} sostuvo a los suyos con {saves} paradas de mérito.", "{keeper}, que volvía tras {months} meses de lesión, detuvo un penalti.", "Un despeje de {keeper} terminó en los pies del delantero, que no perdonó."),
                ("«Hemos sufrido, pero este grupo no se rinde», declaró el entrenador, {coach}.", "El técnico {coach} reconoció que el empate habría sido más justo.", "«El vestuario está unido y eso se nota», dijo {coach} en la sala de prensa."),
                ("En la grada, {people} aficionados celebraron el triunfo hasta mucho después del pitido final.", "La afición visitante, unas {people} personas, viajó en {buses} autobuses.", "El club vendió {people} entradas, la mejor cifra desde {year}."),
                ("Con {points} puntos, el equipo ocupa el cuarto puesto de la tabla.", "{scorer.last} suma ya {goals} goles esta temporada.", "Es la tercera victoria seguida fuera de casa, algo que no ocurría desde {year}."),
                ("El próximo {weekday2} recibirá al líder en su estadio.", "La directiva negocia la renovación del delantero, cuyo contrato termina en {month}.", "El parte médico se conocerá el {weekday2}, después de las pruebas."),
            ),
            extras=("El comité de competición abrió el {weekday2} un expediente por el lanzamiento de objetos al campo; el club local dispone de {days} días para presentar alegaciones.", "Según el comunicado del club, el capitán sufre una rotura fibrilar y estará de baja {weeks} semanas, por lo que se perderá la eliminatoria de copa."),
            doubles=(3, 4, 5),
            pools={"team": ("Atlético Serrano", "Deportivo Almazora", "Real Valdeluz", "Racing de la Ribera", "Unión Costera", "Sporting Montesol")},
            ranges={"minute": (58, 89), "left": (3, 12), "early": (8, 35), "saves": (4, 9), "months": (2, 9), "buses": (6, 48), "points": (21, 57), "goals": (6, 19), "weeks": (3, 8)} | _RANGES,
        ),
    ),
    {
        "firstname": ("Adrián", "Álvaro", "Carlos", "Diego", "Emilio", "Fermín", "Gonzalo", "Hugo", "Iker", "Javier", "Lucas", "Marcos", "Nicolás", "Óscar", "Raúl", "Sergio"),
        "lastname": ("Aguirre", "Barrios", "Cordero", "Durán", "Esteban", "Fuentes", "Galindo", "Herrero", "Ibáñez", "Lozano", "Medina", "Navarro", "Olmedo", "Pascual", "Quintana", "Rivas", "Soriano", "Vidal"),
        "town": ("Alcorisa", "Benavente del Río", "Cantalapiedra", "Fuentespina", "La Almunia", "Montealegre", "Peñarrubia", "San Telmo", "Torreblanca", "Villaseca"),
        "weekday": ("lunes", "miércoles", "viernes", "sábado", "domingo"), "month": ("enero", "marzo", "mayo", "junio", "agosto", "diciembre"), "year": _YEARS,
    },
    "es",
)  # fmt: skip

CHINESE = Desk(
    "中文",
    (
        Topic(
            headlines=("{town}{line}正式通车", "{town}：{line}迎来首批乘客", "{line}开通，{town}居民出行更方便"),
            leads=(
                "{weekday}上午，{town}{line}正式开通运营，全长{km}公里，共设{stops}座车站。",
                "经过{years}年建设，{town}{line}于{weekday}迎来首批乘客，当天客流达到{people}人次。",
                "记者{weekday}从{town}交通局获悉，{line}已通过验收，将于本月底投入使用，总投资{money}亿元。",
            ),
            parts=(
                ("负责施工的工程师{engineer}说，最难的一段要从河底穿过，前后改了{plans}次方案。", "项目负责人{engineer}介绍，施工期间没有发生一起安全事故。", "“每天晚上我们只有四个小时可以作业”，工程师{engineer}回忆说。"),
                ("家住终点站附近的{resident}告诉记者，以前上班要换两趟车，现在只需{minutes}分钟。", "退休教师{resident}一大早就来排队，说自己等这一天等了{years}年。", "在站台上，市民{resident}举着手机拍下了第一班列车进站的画面。"),
                ("票价实行分段计费，起步价两元，最高{fee}元，老人和学生享受半价。", "首班车早上六点发车，末班车晚上十一点，高峰时段间隔{gap}分钟。", "列车采用六节编组，最高时速{speed}公里，车厢内提供无线网络。"),
                ("沿线的商户期待客流带来生意，一家面馆的老板说最近房租涨了百分之{percent}。", "据统计，沿线居住着{homes}万居民，过去主要依靠公交出行。", "部分居民担心列车噪声，环保部门表示夜间监测结果低于标准。"),
                ("按照规划，到{year}年全市轨道交通里程将达到{length}公里。", "与邻近的{town2}相比，当地的轨道交通起步较晚。", "专家认为，新线路可以减少百分之{percent}的路面拥堵。"),
                ("市政府表示，今后将继续完善车站周边的公交接驳和自行车停放设施。", "下一期工程预计在{days}天内开工，将线路延伸到{town2}。", "运营公司招聘了{jobs}名新员工，其中一半来自当地的职业学校。"),
            ),
            extras=("当天下午，运营公司补充说，由于客流超过预期，从{weekday2}起高峰时段将增加{gap}列列车，并在换乘站安排更多志愿者引导乘客。", "市交通局提醒，试运营期间部分出入口尚未开放，乘客可以通过手机查询各站的开放时间，无障碍电梯已经全部启用。"),
            doubles=(3, 4, 5),
            pools={"line": ("地铁一号线", "地铁三号线", "轻轨南线", "机场快线", "跨江有轨电车", "环城快线", "城际铁路")},
            ranges={"stops": (8, 36), "plans": (3, 14), "minutes": (12, 48), "gap": (3, 9), "speed": (80, 160), "length": (120, 680), "fee": (6, 14), "homes": (12, 90)} | _RANGES,
        ),
    ),
    {
        "firstname": ("建国", "丽华", "志强", "秀英", "伟", "敏", "海燕", "文斌", "小红", "俊杰", "雪梅", "永康"),
        "lastname": ("王", "李", "张", "刘", "陈", "杨", "赵", "黄", "周", "吴", "徐", "孙", "何", "郭", "林"),
        "town": ("临江市", "青河市", "云山市", "东湖市", "安平市", "白石市", "南溪市", "长岭市", "金沙市", "新川市"),
        "weekday": ("周一", "周二", "周三", "周四", "周五", "周六", "周日"), "year": tuple(str(year) for year in range(2027, 2036)),
    },
    "zh", "", "{last}{first}",
)  # fmt: skip

JAPANESE = Desk(
    "日本語",
    (
        Topic(
            headlines=("{town}で{festival}、{people}人でにぎわう", "{festival}が{years}年ぶりに復活、{town}", "{town}の{festival}に若い担い手"),
            leads=(
                "{town}で{weekday}、恒例の{festival}が開かれ、およそ{people}人の見物客でにぎわった。",
                "担い手不足で途絶えていた{town}の{festival}が{weekday}、{years}年ぶりに復活した。",
                "{town}の{festival}が{weekday}から始まり、地元の住民や観光客ら{people}人が通りを埋めた。",
            ),
            parts=(
                ("実行委員長の{chair}さんは「天気に恵まれて本当によかった」と話した。", "準備を進めてきた{chair}さんは、{count}人の寄付に支えられたと感謝の言葉を述べた。", "「子どもの頃に見た景色をもう一度見たかった」と保存会の{chair}さんは語る。"),
                ("高さ{metres}センチの山車が細い坂道を上ると、大きな拍手が起こった。", "太鼓の音が鳴り響く中、{count}個の灯籠が川に流された。", "法被姿の若者が声を合わせ、重さ{weight}キロのみこしを担いだ。"),
                ("初めて参加した大学生の{young}さんは「来年も必ず戻ってきたい」と汗をぬぐった。", "隣の{town2}から家族で訪れた{young}さんは、屋台の焼きそばを手に笑顔を見せた。", "海外から来た留学生も多く、通訳を務めた{young}さんは休む間もなかったという。"),
                ("祭りの起源は江戸時代にさかのぼり、豊作を祈る行事として始まったとされる。", "この地域の人口は{year}年に比べて{percent}パーセント減っており、担い手の確保が課題だ。", "市は{money}00万円の補助金を出し、会場までの臨時バスを走らせた。"),
                ("夜には{fireworks}発の花火が打ち上げられ、港の水面を照らした。", "最終日には地元の中学生による踊りが披露される予定だ。", "商店街では{count}店が特別メニューを用意し、夕方にはほとんどが売り切れた。"),
                ("会場周辺の道路は{weekday2}の夜まで通行止めとなる。", "主催者は来年の開催に向けて、{days}日以内に反省会を開くことにしている。", "警察によると、大きな混乱やけが人はなかった。"),
            ),
            extras=("実行委員会は翌日、会場で集めた募金が{fee}万円に達したと発表し、壊れた山車の修理と子どもたちの衣装の新調に充てる方針を明らかにした。", "市の観光課によると、周辺の宿泊施設は三日間ほぼ満室で、経済効果は{money}000万円を超える見込みだという。"),
            doubles=(3, 4, 5),
            pools={"festival": ("灯籠祭り", "秋の大祭", "港まつり", "雪あかりの夜", "獅子舞の祭典", "花田植え", "山車まつり")},
            ranges={"metres": (320, 980), "weight": (280, 1400), "fireworks": (800, 9000)} | _RANGES,
        ),
    ),
    {
        "firstname": ("健一", "美咲", "翔太", "陽子", "直樹", "さくら", "大輔", "由美", "拓也", "千尋", "誠", "恵"),
        "lastname": ("佐々木", "高橋", "中村", "渡辺", "小川", "松本", "石井", "藤原", "岡田", "森", "西村", "大野", "水谷"),
        "town": ("朝霧市", "白浜町", "月見村", "北沢市", "鶴見原町", "深川市", "桜丘町", "長瀬市", "松風村"),
        "weekday": ("土曜日", "日曜日", "祝日の月曜日", "金曜日"), "year": _YEARS,
    },
    "ja", "", "{last}{first}",
)  # fmt: skip

ARABIC = Desk(
    "العربية",
    (
        Topic(
            headlines=("افتتاح {place} في مدينة {town}", "{place} يفتح أبوابه في {town}", "مدينة {town} تحتفل بافتتاح {place}"),
            leads=(
                "افتُتح يوم {weekday} في مدينة {town} {place} بعد أعمال استمرت {years} سنوات وبلغت كلفتها {money} مليونًا.",
                "شهدت مدينة {town} يوم {weekday} افتتاح {place} بحضور {people} من السكان والضيوف.",
                "بعد انتظار دام {years} سنوات، استقبل {place} في {town} أول زواره صباح {weekday}.",
            ),
            parts=(
                ("وقال المدير {director} إن المشروع هدية لكل عائلة في المدينة.", "وأوضح المشرف على المشروع {director} أن {percent} في المئة من التمويل جاء من تبرعات السكان.", "وأكد {director} في كلمته أن الدخول سيكون مجانيًا خلال الأيام {days} الأولى."),
                ("وعبّرت المعلمة {visitor} عن سعادتها قائلة إن الأطفال كانوا يسافرون {km} كيلومترًا من أجل مكان كهذا.", "أما {visitor}، وهي طالبة جامعية، فقد وقفت في الصف منذ الساعة السابعة صباحًا.", "وقالت {visitor} التي تسكن في الحي المجاور إن الشارع أصبح أكثر حياة."),
                ("ويضم المبنى {rooms} قاعة وحديقة ومقهى يطل على النهر.", "وتبلغ مساحة الموقع {metres} مترًا مربعًا، وكان مصنعًا للنسيج حتى عام {year}.", "واستخدم المهندسون حجارة من البناء القديم للحفاظ على طابع الحي."),
                ("ووفر المشروع {jobs} فرصة عمل لأبناء المنطقة.", "وكان مشروع مماثل في مدينة {town2} قد توقف عام {year} بسبب نقص المال.", "وأبدى بعض التجار قلقهم من ازدحام السيارات في السوق المجاورة."),
                ("وستقام في الموقع دورات مسائية ومعارض طوال فصل الشتاء.", "ويفتح المكان أبوابه يوميًا من الساعة التاسعة صباحًا حتى الثامنة مساءً.", "وأعلنت البلدية أن خط الحافلات رقم {bus} سيتوقف أمام المدخل الرئيسي."),
                ("ومن المقرر أن تبدأ المرحلة الثانية خلال {days} يومًا.", "وتعتزم البلدية تقديم تقرير عن عدد الزوار في نهاية السنة.", "وسيناقش مجلس المدينة يوم {weekday2} تخصيص ميزانية للصيانة."),
            ),
            extras=("وفي وقت لاحق ذكرت البلدية أن عدد الزوار في اليوم الأول بلغ {people} زائرًا، وأنها ستزيد عدد الموظفين وتمدد ساعات العمل حتى نهاية الأسبوع المقبل.", "كما أعلنت مؤسسة خيرية من {town2} أنها ستتبرع بمجموعة من {count} كتابًا نادرًا، على أن تعرض في قاعة خاصة بعد ترميمها."),
            doubles=(3, 4, 5),
            pools={"place": ("المتحف الجديد", "المركز الثقافي", "المسرح البلدي", "المستشفى التعليمي", "الملعب الرياضي", "معهد الموسيقى")},
            ranges={"rooms": (12, 64), "bus": (2, 48)} | _RANGES,
        ),
    ),
    {
        "firstname": ("أحمد", "يوسف", "كريم", "عمر", "سامي", "طارق", "خالد", "بشير"),
        "visitor.first": ("سلمى", "ليلى", "نادية", "هدى", "رانيا", "منى", "سعاد", "أمل"),
        "lastname": ("الحداد", "النجار", "المصري", "الخطيب", "الشامي", "القاسم", "البستاني", "الصباغ", "العمري", "الحكيم"),
        "town": ("الرمال", "النخيل", "الزيتونة", "الواحة", "المرسى", "الفيحاء", "الربوة", "عين الماء"),
        "weekday": ("الأحد", "الاثنين", "الثلاثاء", "الأربعاء", "الخميس", "السبت"), "year": _YEARS,
    },
    "ar",
)  # fmt: skip

HINDI = Desk(
    "हिन्दी",
    (
        Topic(
            headlines=("{town} में {crop} के किसानों को राहत", "{town}: {crop} की फसल पर मौसम की मार", "{crop} के दाम बढ़े, {town} के किसान खुश"),
            leads=(
                "{town} ज़िले में इस साल {crop} की पैदावार पिछले साल से {percent} प्रतिशत कम रहने का अनुमान है।",
                "{weekday} को {town} की मंडी में {crop} के दाम {fee} रुपये प्रति किलो तक पहुँच गए।",
                "राज्य सरकार ने {weekday} को {town} के {people} किसानों के लिए {money} करोड़ रुपये की सहायता की घोषणा की।",
            ),
            parts=(
                ("किसान {farmer} ने बताया कि पिछले {years} वर्षों में ऐसी बारिश नहीं देखी।", "“हमने कर्ज़ लेकर बीज खरीदे थे”, {farmer} ने अपने खेत के किनारे खड़े होकर कहा।", "गाँव के बुज़ुर्ग {farmer} का कहना है कि नहर में पानी समय पर नहीं आया।"),
                ("कृषि अधिकारी {officer} के अनुसार {homes} हेक्टेयर में फसल को नुकसान पहुँचा है।", "ज़िला अधिकारी {officer} ने {count} गाँवों का दौरा किया और रिपोर्ट जल्द देने का वादा किया।", "वैज्ञानिक {officer} ने सलाह दी कि किसान कम पानी वाली किस्में अपनाएँ।"),
                ("व्यापारियों का कहना है कि त्योहारों के कारण माँग लगातार बढ़ रही है।", "मंडी में रोज़ लगभग {count} क्विंटल माल पहुँच रहा है, जो सामान्य से कम है।", "पड़ोसी ज़िले {town2} में भी हालात कुछ ऐसे ही बताए जा रहे हैं।"),
                ("सहकारी समिति ने {jobs} परिवारों को मुफ़्त बीज बाँटे हैं।", "बीमा कंपनी को अब तक {people} दावे मिल चुके हैं।", "सरकार ने {year} में भी ऐसी ही योजना शुरू की थी, पर पैसा देर से पहुँचा।"),
                ("मौसम विभाग ने अगले {days} दिनों में हल्की बारिश की संभावना जताई है।", "सिंचाई विभाग {km} किलोमीटर लंबी नहर की मरम्मत करा रहा है।", "किसान संगठन ने {weekday2} को कलेक्टर कार्यालय के सामने धरने की चेतावनी दी है।"),
                ("अंतिम आँकड़े फसल कटने के बाद ही सामने आएँगे।", "मुआवज़े की पहली किस्त अगले महीने बैंक खातों में भेजी जाएगी।", "स्थानीय विधायक ने यह मुद्दा विधानसभा में उठाने का भरोसा दिया है।"),
            ),
            extras=("देर शाम प्रशासन ने स्पष्ट किया कि जिन किसानों का पंजीकरण नहीं हुआ है, वे भी {days} दिनों के भीतर आवेदन कर सकते हैं और इसके लिए कोई शुल्क नहीं लिया जाएगा।", "इस बीच {town2} के एक स्वयंसेवी संगठन ने {count} परिवारों को राशन और पशुओं के लिए चारा पहुँचाने की व्यवस्था की है।"),
            doubles=(3, 4, 5),
            pools={"crop": ("गेहूँ", "गन्ने", "आम", "प्याज़", "कपास", "सोयाबीन", "टमाटर")},
            ranges=_RANGES,
        ),
    ),
    {
        "firstname": ("रमेश", "सुनीता", "अमित", "कविता", "राजेश", "मीना", "विकास", "अनीता", "मोहन", "सरिता"),
        "farmer.first": ("रमेश", "अमित", "राजेश", "विकास", "मोहन", "दिनेश", "सुरेश", "हरीश"),
        "lastname": ("शर्मा", "वर्मा", "यादव", "पटेल", "मिश्रा", "चौहान", "गुप्ता", "तिवारी", "ठाकुर", "जोशी"),
        "town": ("रामनगर", "सोनपुर", "चंद्रगढ़", "हरिपुर", "नवगाँव", "भीमताल", "कमलपुर", "शिवनगर"),
        "weekday": ("सोमवार", "मंगलवार", "बुधवार", "गुरुवार", "शुक्रवार", "शनिवार"), "year": _YEARS,
    },
    "hi",
)  # fmt: skip

DESKS: tuple[Desk, ...] = (GERMAN, FRENCH, SPANISH, CHINESE, JAPANESE, ARABIC, HINDI)
