//! Common misspellings, and American spellings: the pages use British ones with -ize.
//!
//! The list holds no word that is correct in some context, so it has no false alarms.

use super::Page;
use crate::markdown::{blocks, plain};

/// A wrong word in lower case, and the right one.
const WRONG: &[(&str, &str)] = &[
    ("accomodate", "accommodate"),
    ("adress", "address"),
    ("agressive", "aggressive"),
    ("analyze", "analyse"),
    ("apparant", "apparent"),
    ("asyncronous", "asynchronous"),
    ("authentification", "authentication"),
    ("authorisation", "authorization"),
    ("availible", "available"),
    ("begining", "beginning"),
    ("behavior", "behaviour"),
    ("calender", "calendar"),
    ("canceled", "cancelled"),
    ("catalog", "catalogue"),
    ("certifcate", "certificate"),
    ("color", "colour"),
    ("comming", "coming"),
    ("compatability", "compatibility"),
    ("compatable", "compatible"),
    ("completly", "completely"),
    ("concurrant", "concurrent"),
    ("configuraton", "configuration"),
    ("consistant", "consistent"),
    ("containes", "contains"),
    ("definately", "definitely"),
    ("dependant", "dependent"),
    ("depricated", "deprecated"),
    ("durabilty", "durability"),
    ("enviroment", "environment"),
    ("excecute", "execute"),
    ("existant", "existent"),
    ("existance", "existence"),
    ("favor", "favour"),
    ("guage", "gauge"),
    ("gaurantee", "guarantee"),
    ("garantee", "guarantee"),
    ("heirarchy", "hierarchy"),
    ("immediatly", "immediately"),
    ("independant", "independent"),
    ("initialise", "initialize"),
    ("kubernets", "Kubernetes"),
    ("langauge", "language"),
    ("latancy", "latency"),
    ("maintainance", "maintenance"),
    ("neccessary", "necessary"),
    ("necesary", "necessary"),
    ("noticable", "noticeable"),
    ("occured", "occurred"),
    ("occurence", "occurrence"),
    ("paramter", "parameter"),
    ("peformance", "performance"),
    ("perfomance", "performance"),
    ("permision", "permission"),
    ("posible", "possible"),
    ("preceeding", "preceding"),
    ("prefered", "preferred"),
    ("priviledge", "privilege"),
    ("psuedo", "pseudo"),
    ("recieve", "receive"),
    ("recieved", "received"),
    ("recomend", "recommend"),
    ("refered", "referred"),
    ("relevent", "relevant"),
    ("resourse", "resource"),
    ("responce", "response"),
    ("retreive", "retrieve"),
    ("seperate", "separate"),
    ("seperately", "separately"),
    ("similiar", "similar"),
    ("succesful", "successful"),
    ("successfull", "successful"),
    ("synchronisation", "synchronization"),
    ("teh", "the"),
    ("threshhold", "threshold"),
    ("transfered", "transferred"),
    ("truely", "truly"),
    ("unkown", "unknown"),
    ("untill", "until"),
    ("usefull", "useful"),
    ("wich", "which"),
    ("writting", "writing"),
];

/// A value of the Kubernetes API with another spelling.
const API_VALUE: &str = "Canceled";

pub(super) fn check(page: &Page) -> Vec<String> {
    let mut faults = Vec::new();
    for block in blocks(&page.text) {
        let text = plain(&block.text).replace(API_VALUE, "").to_lowercase();
        let words = text.split(|c: char| !c.is_alphanumeric());
        let wrong = words.filter_map(|word| WRONG.iter().find(|(wrong, _)| *wrong == word));
        faults
            .extend(wrong.map(|(wrong, right)| format!("{}:{}: {wrong}, spelt {right} here", page.place, block.line)));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::{Page, WRONG, check};

    #[test]
    fn a_misspelt_word_is_named_outside_of_code() {
        let text = "Fine.\n\nThe server will Recieve it.\n\n| `color` | color |\n\n```\nteh\n```\n".to_owned();
        let page = Page { place: "docs/a.md".to_owned(), text };
        let expected = ["docs/a.md:3: recieve, spelt receive here", "docs/a.md:5: color, spelt colour here"];
        assert_eq!(check(&page), expected);
        assert!(WRONG.iter().all(|(wrong, right)| *wrong == wrong.to_lowercase() && wrong != right));
    }
}
