//! Parameter schemas: a subset of JSON Schema 2020-12 in which nothing is ignored.
//!
//! A keyword that is not known here is refused by its name when the schema is published, so that no
//! rule of an author silently does not count. There are no binary fractions: a decimal is a string
//! of `"format": "decimal"`, which `formatMinimum` and `formatMaximum` bound. An object says itself
//! whether it takes other members (`additionalProperties`), so that a misspelt parameter is never
//! taken for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use regex::Regex;
use runwhere_model::parse_decimal;
use rust_decimal::Decimal;
use serde_json::{Map, Value};

use crate::api::text::{Words, words};

/// Deepest nesting of a schema and of what it describes.
pub(super) const DEPTH: usize = 16;
const ANNOTATIONS: &[&str] =
    &["$schema", "$comment", "title", "description", "examples", "deprecated"];
const PATTERN_BYTES: usize = 1 << 20;

/// What is wrong, and where: a path such as `layers.0.rank`, empty for the whole.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Fault {
    pub(super) path: String,
    pub(super) why: Words,
}

impl Fault {
    fn new(path: &str, why: Words) -> Self {
        Self { path: path.to_owned(), why }
    }

    /// The sentence, below the name of the whole.
    pub(super) fn told(&self, whole: &str) -> Words {
        match self.path.is_empty() {
            true => self.why.about(whole),
            false => self.why.about(format_args!("{whole}.{}", self.path)),
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Kind {
    Text,
    Integer,
    Flag,
    List,
    Object,
}

impl Kind {
    fn parse(word: &str) -> Result<Self, Words> {
        Ok(match word {
            "string" => Self::Text,
            "integer" => Self::Integer,
            "boolean" => Self::Flag,
            "array" => Self::List,
            "object" => Self::Object,
            "number" => {
                return Err(words!(
                    "不支持 type number；请用 integer，或 format 为 decimal 的 string",
                    "type number is not served; use integer, or string with format decimal"
                ));
            }
            "null" => {
                return Err(words!(
                    "不支持 type null；null 视为没有给出",
                    "type null is not served; a null counts as absent"
                ));
            }
            _ => {
                return Err(words!(
                    "type 必须是 string、integer、boolean、array 或 object",
                    "type must be string, integer, boolean, array or object"
                ));
            }
        })
    }

    fn words(self) -> Words {
        match self {
            Self::Text => words!("字符串", "a string"),
            Self::Integer => words!("整数", "an integer"),
            Self::Flag => words!("布尔值", "true or false"),
            Self::List => words!("列表", "a list"),
            Self::Object => words!("对象", "an object"),
        }
    }

    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(_) => Some(Self::Text),
            Value::Number(number) => integer(number).map(|_| Self::Integer),
            Value::Bool(_) => Some(Self::Flag),
            Value::Array(_) => Some(Self::List),
            Value::Object(_) => Some(Self::Object),
            Value::Null => None,
        }
    }
}

fn integer(number: &serde_json::Number) -> Option<i128> {
    number.as_i128()
}

/// A schema that was checked.
#[derive(Clone, Debug, Default)]
pub(super) struct ParameterSchema {
    kinds: BTreeSet<Kind>,
    choices: Option<Vec<Value>>,
    least: Option<i128>,
    most: Option<i128>,
    step: Option<i128>,
    shortest: Option<usize>,
    longest: Option<usize>,
    pattern: Option<Regex>,
    decimal: bool,
    least_decimal: Option<Decimal>,
    most_decimal: Option<Decimal>,
    items: Option<Box<ParameterSchema>>,
    fewest: Option<usize>,
    largest: Option<usize>,
    unique: bool,
    members: BTreeMap<String, ParameterSchema>,
    required: Vec<String>,
    open: bool,
    default: Option<Value>,
}

impl ParameterSchema {
    /// Reads the schema of an object of parameters.
    ///
    /// # Errors
    /// The first keyword that is unknown or wrong.
    pub(super) fn read(value: &Value) -> Result<Self, Fault> {
        let schema = Self::part(value, "", 0)?;
        if schema.kinds != BTreeSet::from([Kind::Object]) {
            let why = words!("整体的 type 必须是 object", "the whole must be of type object");
            return Err(Fault::new("", why));
        }
        Ok(schema)
    }

    fn part(value: &Value, path: &str, depth: usize) -> Result<Self, Fault> {
        let wrong = |why: Words| Fault::new(path, why);
        if depth > DEPTH {
            return Err(wrong(words!("嵌套超过 {DEPTH} 层", "nested deeper than {DEPTH}")));
        }
        let Value::Object(map) = value else {
            return Err(wrong(words!("schema 必须是对象", "a schema must be an object")));
        };
        let mut schema = Self::default();
        let mut closed = None;
        for (key, value) in map {
            let bad = |what: Words| wrong(words!("{key} 必须是", "{key} must be ").then(&what));
            let no_number = || bad(words!("整数", "a whole number"));
            let no_decimal = || bad(words!("以字符串给出的小数", "a decimal as a string"));
            let no_flag = || bad(words!("布尔值", "true or false"));
            let whole = || match value {
                Value::Number(number) => integer(number).ok_or_else(no_number),
                _ => Err(no_number()),
            };
            let size = || {
                let least = words!("不小于 0 的整数", "a whole number from 0");
                whole()?.try_into().map_err(|_| bad(least))
            };
            match key.as_str() {
                "type" => schema.kinds = kinds(value).map_err(wrong)?,
                "enum" => match value {
                    Value::Array(choices) if !choices.is_empty() => {
                        schema.choices = Some(choices.clone());
                    }
                    _ => return Err(bad(words!("非空列表", "a list that is not empty"))),
                },
                "const" => schema.choices = Some(vec![value.clone()]),
                "minimum" => schema.least = Some(whole()?),
                "maximum" => schema.most = Some(whole()?),
                "exclusiveMinimum" => schema.least = Some(whole()?.saturating_add(1)),
                "exclusiveMaximum" => schema.most = Some(whole()?.saturating_sub(1)),
                "multipleOf" => {
                    schema.step = Some(whole()?).filter(|step| *step > 0);
                    schema.step.ok_or_else(|| bad(words!("正整数", "a positive whole number")))?;
                }
                "minLength" => schema.shortest = Some(size()?),
                "maxLength" => schema.longest = Some(size()?),
                "pattern" => {
                    let text = value.as_str();
                    let text = text.ok_or_else(|| bad(Kind::Text.words()))?;
                    let built = regex::RegexBuilder::new(text).size_limit(PATTERN_BYTES).build();
                    // The error's own text is a drawing of several lines.
                    schema.pattern = Some(built.map_err(|_| {
                        bad(words!(
                            "正则表达式（不含环视和反向引用）",
                            "a regular expression (without look-around and back references)"
                        ))
                    })?);
                }
                "format" => match value.as_str() {
                    Some("decimal") => schema.decimal = true,
                    _ => {
                        return Err(bad(words!(
                            " decimal；不支持其他 format",
                            "decimal; no other format is served"
                        )));
                    }
                },
                "formatMinimum" => {
                    schema.least_decimal = Some(bound(value).ok_or_else(no_decimal)?)
                }
                "formatMaximum" => schema.most_decimal = Some(bound(value).ok_or_else(no_decimal)?),
                "items" => {
                    let below = join(path, "items");
                    schema.items = Some(Box::new(Self::part(value, &below, depth + 1)?));
                }
                "minItems" => schema.fewest = Some(size()?),
                "maxItems" => schema.largest = Some(size()?),
                "uniqueItems" => schema.unique = value.as_bool().ok_or_else(no_flag)?,
                "properties" => {
                    let members = value.as_object();
                    let members = members.ok_or_else(|| bad(Kind::Object.words()))?;
                    for (name, member) in members {
                        let part = Self::part(member, &join(path, &shown(name)), depth + 1)?;
                        schema.members.insert(name.clone(), part);
                    }
                }
                "required" => {
                    let names = value.as_array().into_iter().flatten();
                    let names: Option<Vec<String>> =
                        names.map(|name| name.as_str().map(str::to_owned)).collect();
                    let names = names.filter(|_| value.is_array());
                    schema.required =
                        names.ok_or_else(|| bad(words!("名称的列表", "a list of names")))?;
                }
                "additionalProperties" => {
                    closed = Some(!value.as_bool().ok_or_else(no_flag)?);
                }
                "default" => schema.default = Some(value.clone()),
                known if ANNOTATIONS.contains(&known) => {}
                unknown => {
                    let name = shown(unknown);
                    return Err(wrong(words!(
                        "不支持关键字 {name}；docs/envloop.md 列出了支持的关键字",
                        "the keyword {name} is not served; docs/envloop.md lists those that are"
                    )));
                }
            }
        }
        schema.open = closed == Some(false);
        schema.coherent(map, closed, path)?;
        Ok(schema)
    }

    /// Rules between keywords.
    fn coherent(
        &self,
        map: &Map<String, Value>,
        closed: Option<bool>,
        path: &str,
    ) -> Result<(), Fault> {
        let wrong = |why: Words| Err(Fault::new(path, why));
        if self.kinds.is_empty() && self.choices.is_none() {
            return wrong(words!(
                "缺少 type（或 enum、const）",
                "type (or enum, or const) is missing"
            ));
        }
        for (kind, keywords) in [
            (
                Kind::Integer,
                &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"][..],
            ),
            (
                Kind::Text,
                &["minLength", "maxLength", "pattern", "format", "formatMinimum", "formatMaximum"],
            ),
            (Kind::List, &["items", "minItems", "maxItems", "uniqueItems"]),
            (Kind::Object, &["properties", "required", "additionalProperties"]),
        ] {
            let stray = keywords.iter().find(|keyword| map.contains_key(**keyword));
            if let Some(keyword) = stray.filter(|_| !self.kinds.contains(&kind)) {
                let only = words!("{keyword} 只用于", "{keyword} is only for ");
                return wrong(only.then(&kind.words()));
            }
        }
        for (one, other) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
            if map.contains_key(one) && map.contains_key(other) {
                return wrong(words!(
                    "{one} 和 {other} 只能给出其中之一",
                    "give either {one} or {other}"
                ));
            }
        }
        if (self.least_decimal.is_some() || self.most_decimal.is_some()) && !self.decimal {
            return wrong(words!(
                "formatMinimum 和 formatMaximum 需要 format 为 decimal",
                "formatMinimum and formatMaximum need format decimal"
            ));
        }
        if self.kinds.contains(&Kind::Object) && closed.is_none() {
            return wrong(words!(
                "对象必须写明 additionalProperties 为 false（或 true）",
                "say additionalProperties false (or true) for an object"
            ));
        }
        if let Some(name) = self.required.iter().find(|name| !self.members.contains_key(*name)) {
            let name = shown(name);
            return wrong(words!(
                "required 中的 {name} 不在 properties 里",
                "required names {name}, which properties lacks"
            ));
        }
        for choice in self.choices.iter().flatten() {
            if plain(choice, DEPTH).is_err() {
                return wrong(words!(
                    "enum 和 const 不能含小数或 null",
                    "enum and const must not hold fractions or null"
                ));
            }
        }
        if let Some(default) = &self.default {
            let filled = self.apply(default).map_err(|fault| {
                let why = words!("默认值不符合 schema：", "its default does not fit: ");
                Fault::new(path, why.then(&fault.told("default")))
            })?;
            // What is frozen must not depend on how often defaults are filled in.
            if filled != *default {
                return wrong(words!("默认值本身必须完整", "its default must itself be complete"));
            }
        }
        Ok(())
    }

    /// The value with defaults filled in, if it fits.
    ///
    /// # Errors
    /// The first member that does not fit.
    pub(super) fn apply(&self, value: &Value) -> Result<Value, Fault> {
        plain(value, DEPTH).map_err(|(path, why)| Fault::new(&path, why))?;
        let mut value = value.clone();
        self.fit(&mut value, "")?;
        Ok(value)
    }

    fn fit(&self, value: &mut Value, path: &str) -> Result<(), Fault> {
        let wrong = |why: Words| Err(Fault::new(path, why));
        let kind = Kind::of(value);
        if !self.kinds.is_empty() && !kind.is_some_and(|kind| self.kinds.contains(&kind)) {
            let mut why = words!("必须是", "must be ");
            for (index, kind) in self.kinds.iter().enumerate() {
                if index > 0 {
                    why = why.then(&words!("或", " or "));
                }
                why = why.then(&kind.words());
            }
            return wrong(why);
        }
        match value {
            Value::Number(number) => self.fit_integer(integer(number).unwrap_or_default(), path)?,
            Value::String(text) => self.fit_text(text, path)?,
            Value::Array(items) => self.fit_list(items, path)?,
            Value::Object(members) => self.fit_object(members, path)?,
            Value::Null | Value::Bool(_) => {}
        }
        if self.choices.as_ref().is_some_and(|choices| !choices.contains(value)) {
            return wrong(words!(
                "不是 schema 列出的值",
                "is none of the values that the schema lists"
            ));
        }
        Ok(())
    }

    fn fit_integer(&self, number: i128, path: &str) -> Result<(), Fault> {
        let wrong = |why: Words| Err(Fault::new(path, why));
        if let Some(least) = self.least.filter(|least| number < *least) {
            return wrong(at_least(least));
        }
        if let Some(most) = self.most.filter(|most| number > *most) {
            return wrong(at_most(most));
        }
        match self.step.filter(|step| number % step != 0) {
            Some(step) => wrong(words!("必须是 {step} 的倍数", "must be a multiple of {step}")),
            None => Ok(()),
        }
    }

    fn fit_text(&self, text: &str, path: &str) -> Result<(), Fault> {
        let wrong = |why: Words| Err(Fault::new(path, why));
        let count = text.chars().count();
        if let Some(least) = self.shortest.filter(|least| count < *least) {
            return wrong(words!(
                "至少要有 {least} 个字符",
                "must have at least {least} characters"
            ));
        }
        if let Some(most) = self.longest.filter(|most| count > *most) {
            return wrong(words!(
                "最多只能有 {most} 个字符",
                "must have at most {most} characters"
            ));
        }
        if self.pattern.as_ref().is_some_and(|pattern| !pattern.is_match(text)) {
            return wrong(words!(
                "不匹配 schema 的 pattern",
                "does not match the schema's pattern"
            ));
        }
        if !self.decimal {
            return Ok(());
        }
        let Ok(number) = parse_decimal(text) else {
            return wrong(words!(
                "必须是以字符串给出的小数，例如 \"0.0002\"",
                "must be a decimal as a string, for example \"0.0002\""
            ));
        };
        if let Some(least) = self.least_decimal.filter(|least| number < *least) {
            return wrong(at_least(least));
        }
        match self.most_decimal.filter(|most| number > *most) {
            Some(most) => wrong(at_most(most)),
            None => Ok(()),
        }
    }

    fn fit_list(&self, items: &mut [Value], path: &str) -> Result<(), Fault> {
        let wrong = |why: Words| Err(Fault::new(path, why));
        if let Some(least) = self.fewest.filter(|least| items.len() < *least) {
            return wrong(words!("至少要有 {least} 项", "must have at least {least} entries"));
        }
        if let Some(most) = self.largest.filter(|most| items.len() > *most) {
            return wrong(words!("最多只能有 {most} 项", "must have at most {most} entries"));
        }
        if let Some(schema) = &self.items {
            for (index, item) in items.iter_mut().enumerate() {
                schema.fit(item, &join(path, &index.to_string()))?;
            }
        }
        if self.unique {
            let texts: BTreeSet<String> = items.iter().map(super::canonical).collect();
            if texts.len() != items.len() {
                return wrong(words!("不能有重复项", "must not have an entry twice"));
            }
        }
        Ok(())
    }

    fn fit_object(&self, members: &mut Map<String, Value>, path: &str) -> Result<(), Fault> {
        let wrong = |why: Words| Err(Fault::new(path, why));
        if !self.open
            && self.kinds.contains(&Kind::Object)
            && let Some(name) = members.keys().find(|name| !self.members.contains_key(*name))
        {
            let name = shown(name);
            return wrong(words!(
                "{name} 不是 schema 中的成员",
                "{name} is not a member that the schema knows"
            ));
        }
        for (name, schema) in &self.members {
            if let (None, Some(default)) = (members.get(name), &schema.default) {
                members.insert(name.clone(), default.clone());
            }
        }
        if let Some(name) = self.required.iter().find(|name| !members.contains_key(*name)) {
            let name = shown(name);
            return wrong(words!("缺少 {name}", "{name} is missing"));
        }
        for (name, schema) in &self.members {
            if let Some(member) = members.get_mut(name) {
                schema.fit(member, &join(path, &shown(name)))?;
            }
        }
        Ok(())
    }
}

fn at_least(bound: impl Display) -> Words {
    words!("不能小于 {bound}", "must be at least {bound}")
}

fn at_most(bound: impl Display) -> Words {
    words!("不能大于 {bound}", "must be at most {bound}")
}

fn kinds(value: &Value) -> Result<BTreeSet<Kind>, Words> {
    let wrong = || words!("type 必须是单词或单词的列表", "type must be a word or a list of words");
    match value {
        Value::String(word) => Ok(BTreeSet::from([Kind::parse(word)?])),
        Value::Array(words) if !words.is_empty() => {
            words.iter().map(|word| Kind::parse(word.as_str().ok_or_else(wrong)?)).collect()
        }
        _ => Err(wrong()),
    }
}

fn bound(value: &Value) -> Option<Decimal> {
    parse_decimal(value.as_str()?).ok()
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control() && !"[]".contains(*c)).take(64).collect()
}

/// Whether a value holds neither fractions nor null and is not nested too deep; else where, and
/// what to do.
pub(super) fn plain(value: &Value, depth: usize) -> Result<(), (String, Words)> {
    if depth == 0 {
        return Err((String::new(), words!("嵌套过深", "is nested too deep")));
    }
    let below = |name: String| {
        move |(path, why): (String, Words)| {
            (join(&name, &path).trim_end_matches('.').to_owned(), why)
        }
    };
    match value {
        Value::Number(number) if integer(number).is_none() => Err((
            String::new(),
            words!(
                "是小数或过大；小数请以字符串给出，例如 \"0.5\"",
                "is a fraction or too large; give a decimal as a string, for example \"0.5\""
            ),
        )),
        Value::Null => Err((String::new(), words!("不能是 null", "must not be null"))),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| plain(item, depth - 1).map_err(below(index.to_string()))),
        Value::Object(members) => members
            .iter()
            .try_for_each(|(name, member)| plain(member, depth - 1).map_err(below(shown(name)))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
