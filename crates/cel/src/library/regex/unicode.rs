//! The names and tables of `\p{...}`, as in kube-apiserver's version of Go.
//!
//! The library's tables are those of a newer Unicode version. Here they are restricted to the code points that
//! [`VERSION`] assigns. Names are compared without regard to case, spaces, hyphens and underscores.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use regex_syntax::hir::{Class, HirKind};

use super::code_points::{CodePoints, LAST};

/// The Unicode version of the tables.
const VERSION: &str = "15.0";
/// The length of the longest name in bytes.
const LONGEST_NAME: usize = 64;

/// The general categories.
const CATEGORIES: [&str; 40] = [
    "C", "Cc", "Cf", "Cn", "Co", "Cs", "L", "LC", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl",
    "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs", "Any",
    "ASCII",
];

/// Long names of general categories.
const ALIASES: [(&str, &str); 41] = [
    ("Cased_Letter", "LC"),
    ("Close_Punctuation", "Pe"),
    ("Combining_Mark", "M"),
    ("Connector_Punctuation", "Pc"),
    ("Control", "Cc"),
    ("Currency_Symbol", "Sc"),
    ("Dash_Punctuation", "Pd"),
    ("Decimal_Number", "Nd"),
    ("Enclosing_Mark", "Me"),
    ("Final_Punctuation", "Pf"),
    ("Format", "Cf"),
    ("Initial_Punctuation", "Pi"),
    ("Letter", "L"),
    ("Letter_Number", "Nl"),
    ("Line_Separator", "Zl"),
    ("Lowercase_Letter", "Ll"),
    ("Mark", "M"),
    ("Math_Symbol", "Sm"),
    ("Modifier_Letter", "Lm"),
    ("Modifier_Symbol", "Sk"),
    ("Nonspacing_Mark", "Mn"),
    ("Number", "N"),
    ("Open_Punctuation", "Ps"),
    ("Other", "C"),
    ("Other_Letter", "Lo"),
    ("Other_Number", "No"),
    ("Other_Punctuation", "Po"),
    ("Other_Symbol", "So"),
    ("Paragraph_Separator", "Zp"),
    ("Private_Use", "Co"),
    ("Punctuation", "P"),
    ("Separator", "Z"),
    ("Space_Separator", "Zs"),
    ("Spacing_Mark", "Mc"),
    ("Surrogate", "Cs"),
    ("Symbol", "S"),
    ("Titlecase_Letter", "Lt"),
    ("Uppercase_Letter", "Lu"),
    ("cntrl", "Cc"),
    ("digit", "Nd"),
    ("punct", "P"),
];

/// The scripts.
#[rustfmt::skip]
const SCRIPTS: [&str; 163] = [
    "Adlam", "Ahom", "Anatolian_Hieroglyphs", "Arabic", "Armenian", "Avestan", "Balinese", "Bamum", "Bassa_Vah", "Batak",
    "Bengali", "Bhaiksuki", "Bopomofo", "Brahmi", "Braille", "Buginese", "Buhid", "Canadian_Aboriginal", "Carian",
    "Caucasian_Albanian", "Chakma", "Cham", "Cherokee", "Chorasmian", "Common", "Coptic", "Cuneiform", "Cypriot",
    "Cypro_Minoan", "Cyrillic", "Deseret", "Devanagari", "Dives_Akuru", "Dogra", "Duployan", "Egyptian_Hieroglyphs", "Elbasan",
    "Elymaic", "Ethiopic", "Georgian", "Glagolitic", "Gothic", "Grantha", "Greek", "Gujarati", "Gunjala_Gondi", "Gurmukhi",
    "Han", "Hangul", "Hanifi_Rohingya", "Hanunoo", "Hatran", "Hebrew", "Hiragana", "Imperial_Aramaic", "Inherited",
    "Inscriptional_Pahlavi", "Inscriptional_Parthian", "Javanese", "Kaithi", "Kannada", "Katakana", "Kawi", "Kayah_Li",
    "Kharoshthi", "Khitan_Small_Script", "Khmer", "Khojki", "Khudawadi", "Lao", "Latin", "Lepcha", "Limbu", "Linear_A",
    "Linear_B", "Lisu", "Lycian", "Lydian", "Mahajani", "Makasar", "Malayalam", "Mandaic", "Manichaean", "Marchen",
    "Masaram_Gondi", "Medefaidrin", "Meetei_Mayek", "Mende_Kikakui", "Meroitic_Cursive", "Meroitic_Hieroglyphs", "Miao", "Modi",
    "Mongolian", "Mro", "Multani", "Myanmar", "Nabataean", "Nag_Mundari", "Nandinagari", "New_Tai_Lue", "Newa", "Nko", "Nushu",
    "Nyiakeng_Puachue_Hmong", "Ogham", "Ol_Chiki", "Old_Hungarian", "Old_Italic", "Old_North_Arabian", "Old_Permic",
    "Old_Persian", "Old_Sogdian", "Old_South_Arabian", "Old_Turkic", "Old_Uyghur", "Oriya", "Osage", "Osmanya", "Pahawh_Hmong",
    "Palmyrene", "Pau_Cin_Hau", "Phags_Pa", "Phoenician", "Psalter_Pahlavi", "Rejang", "Runic", "Samaritan", "Saurashtra",
    "Sharada", "Shavian", "Siddham", "SignWriting", "Sinhala", "Sogdian", "Sora_Sompeng", "Soyombo", "Sundanese",
    "Syloti_Nagri", "Syriac", "Tagalog", "Tagbanwa", "Tai_Le", "Tai_Tham", "Tai_Viet", "Takri", "Tamil", "Tangsa", "Tangut",
    "Telugu", "Thaana", "Thai", "Tibetan", "Tifinagh", "Tirhuta", "Toto", "Ugaritic", "Vai", "Vithkuqi", "Wancho",
    "Warang_Citi", "Yezidi", "Yi", "Zanabazar_Square",
];

/// A table that `\p{...}` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Table {
    /// All assigned code points.
    Assigned,
    /// The general category at this index. Also the classes of all code points and of ASCII.
    Category(usize),
    /// The script at this index.
    Script(usize),
}

/// The table of this name.
pub(super) fn table(name: &str) -> Option<Table> {
    static TABLES: LazyLock<HashMap<String, Table>> = LazyLock::new(|| {
        let mut tables: HashMap<String, Table> = HashMap::from([("assigned".to_owned(), Table::Assigned)]);
        for (at, script) in SCRIPTS.iter().enumerate() {
            tables.insert(canonical(script), Table::Script(at));
        }
        let at = |category: &str| CATEGORIES.iter().position(|one| *one == category).map(Table::Category);
        let names = CATEGORIES.iter().map(|name| (*name, *name)).chain(ALIASES).chain([("Unassigned", "Cn")]);
        tables.extend(names.filter_map(|(name, category)| Some((canonical(name), at(category)?))));
        tables
    });
    (name.len() <= LONGEST_NAME).then(|| TABLES.get(&canonical(name)).copied()).flatten()
}

fn canonical(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).map(|c| c.to_ascii_lowercase()).collect()
}

impl Table {
    /// Its code points, computed once.
    pub(super) fn code_points(self) -> &'static CodePoints {
        static CATEGORY_SETS: [OnceLock<CodePoints>; CATEGORIES.len()] = [const { OnceLock::new() }; CATEGORIES.len()];
        static SCRIPT_SETS: [OnceLock<CodePoints>; SCRIPTS.len()] = [const { OnceLock::new() }; SCRIPTS.len()];
        static ASSIGNED: OnceLock<CodePoints> = OnceLock::new();
        match self {
            Self::Assigned => ASSIGNED.get_or_init(|| category("Cn").negated()),
            Self::Category(at) => CATEGORY_SETS[at].get_or_init(|| category(CATEGORIES[at])),
            Self::Script(at) => SCRIPT_SETS[at].get_or_init(|| of_version(&format!(r"\p{{sc={}}}", SCRIPTS[at]))),
        }
    }
}

fn category(name: &str) -> CodePoints {
    match name {
        "Any" => CodePoints::new(&[(0, LAST)]),
        "ASCII" => CodePoints::new(&[(0, 0x7F)]),
        // No text contains surrogates, and the library has no name for them.
        "Cs" => CodePoints::new(&[(0xD800, 0xDFFF)]),
        // Code points that newer versions have assigned are unassigned here.
        "Cn" => named(&format!(r"[\p{{gc=Cn}}\P{{age={VERSION}}}]")),
        "C" => named(&format!(r"[\p{{gc=C}}\P{{age={VERSION}}}]")),
        // The only code point whose category changed after version 15.0.
        "Mn" => of_version(r"\p{gc=Mn}\x{1171E}"),
        "Mc" => of_version(r"\p{gc=Mc}--\x{1171E}"),
        "LC" => of_version(r"\p{Lu}\p{Ll}\p{Lt}"),
        name => of_version(&format!(r"\p{{gc={name}}}")),
    }
}

/// All code points with case variants, and some without.
pub(super) fn cased() -> CodePoints {
    of_version(r"\p{Changes_When_Casemapped}")
}

/// Returns true for a code point that [`VERSION`] assigns.
pub(super) fn is_assigned(code: u32) -> bool {
    static ASSIGNED: LazyLock<CodePoints> = LazyLock::new(|| named(&format!(r"\p{{age={VERSION}}}")));
    ASSIGNED.contains((code, code))
}

/// The code points of classes that [`VERSION`] assigns.
fn of_version(classes: &str) -> CodePoints {
    named(&format!(r"[[{classes}]&&\p{{age={VERSION}}}]"))
}

/// The code points of a class in the library's own syntax.
fn named(class: &str) -> CodePoints {
    let parsed = regex_syntax::parse(class).expect("the library has every property used here");
    match parsed.into_kind() {
        HirKind::Class(Class::Unicode(class)) => CodePoints::of_class(&class),
        // The library turns a class of one code point into a literal.
        HirKind::Literal(literal) => {
            let codes = std::str::from_utf8(&literal.0).unwrap_or_default().chars().map(u32::from);
            CodePoints::new(&codes.map(|code| (code, code)).collect::<Vec<_>>())
        }
        _ => CodePoints::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each table: its name, then the number and a digest of its code points, and the same with case variants.
    /// Written by Go 1.26.
    const TABLES: &str = include_str!("../../../tests/go_regexp/unicode.txt");

    fn digest(set: &CodePoints) -> String {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut count = 0;
        let pieces = set.ranges().iter().flat_map(|&(first, last)| {
            // Surrogates belong to no set of the table.
            [(first, last.min(0xD7FF)), (first.max(0xE000), last)]
        });
        for (first, last) in pieces.filter(|(first, last)| first <= last) {
            count += last - first + 1;
            for byte in format!("{first:x}-{last:x};").bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        format!("{count} {hash:016x}")
    }

    #[test]
    fn every_table_is_that_of_go() {
        let mut wrong = Vec::new();
        for line in TABLES.lines() {
            let (name, expected) = line.split_once(' ').unwrap();
            let table = table(name).unwrap_or_else(|| panic!("no table {name}"));
            let plain = table.code_points().clone();
            let mut folded = plain.clone();
            folded.fold();
            let found = format!("{} {}", digest(&plain), digest(&folded));
            if found != expected {
                wrong.push(format!("{name}: {found}, not {expected}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(TABLES.lines().count(), CATEGORIES.len() + SCRIPTS.len() + 1, "no table is left out");
    }

    #[test]
    fn names_are_compared_without_case_and_separators() {
        for name in ["Old_Italic", "olditalic", "OLD ITALIC", "old-italic"] {
            assert_eq!(table(name), table("Old_Italic"), "{name}");
        }
        assert_eq!(table("lowercase letter"), table("Ll"));
        for name in ["", "^L", "Script=Greek", "IsGreek", "Grek", "Garay", "Alphabetic", &"L".repeat(100)] {
            assert_eq!(table(name), None, "{name}");
        }
    }
}
