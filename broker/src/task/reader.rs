//! Walking the tree: sections with known keys, typed values, problems on the way.

use super::node::{Body, Node};
use super::place::{FieldPath, Position, Segment};
use super::problem::{Found, Problem, Problems, Wanted};
use super::shown::shown;

/// Keys of the top level.
pub(super) const TOP: &[&str] = &["kind", "version", "job", "environment", "resources", "storage"];
/// Keys of `job`.
pub(super) const JOB: &[&str] = &["name", "description", "maxDuration"];
/// Keys of `environment`.
pub(super) const ENVIRONMENT: &[&str] =
    &["image", "conda", "requirements", "command", "args", "env", "wandb_external"];
/// Keys of `resources`.
pub(super) const RESOURCES: &[&str] = &["gpuNum", "gpuType", "gpuSkuKey"];
/// Keys of `storage`.
pub(super) const STORAGE: &[&str] = &["workdirs", "models", "checkpoint"];
/// Keys of an element of `storage.workdirs`.
pub(super) const WORKDIR: &[&str] = &["path"];
/// Keys of an element of `storage.models`.
pub(super) const MODEL: &[&str] = &["source", "path"];
/// Keys of `storage.checkpoint`.
pub(super) const CHECKPOINT: &[&str] = &["path"];

/// Sections whose keys people put elsewhere.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("", TOP),
    ("job.", JOB),
    ("environment.", ENVIRONMENT),
    ("resources.", RESOURCES),
    ("storage.", STORAGE),
];

/// A value of a mapping or list, with its path.
#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    pub(super) path: FieldPath,
    /// Where the key stands; for an element of a list, the value.
    pub(super) key_at: Position,
    pub(super) node: &'a Node,
}

impl<'a> Field<'a> {
    /// Where to point for a problem of the value. A value that is not there has its key's place.
    pub(super) fn at(&self) -> Position {
        if self.is_absent() { self.key_at } else { self.node.at }
    }

    /// Nothing at all stands behind the key.
    fn is_absent(&self) -> bool {
        matches!(&self.node.body, Body::Scalar { text, quoted: false } if text.is_empty())
    }

    pub(super) fn is_null(&self) -> bool {
        self.node.found() == Found::Null
    }

    pub(super) fn report(&self, problems: &mut Problems, problem: Problem) {
        problems.report(&self.path, self.at(), problem);
    }

    /// A string, possibly empty.
    pub(super) fn any_string(&self, wanted: Wanted, problems: &mut Problems) -> Option<&'a str> {
        if let Some(text) = self.node.text() {
            return Some(text);
        }
        let problem = match self.node.found() {
            found @ (Found::List | Found::Mapping) => Problem::WrongType { wanted, found },
            found => Problem::NeedsQuotes { found },
        };
        self.report(problems, problem);
        None
    }

    /// A string with something in it.
    pub(super) fn string(&self, wanted: Wanted, problems: &mut Problems) -> Option<&'a str> {
        if self.is_absent() {
            self.report(problems, Problem::Empty);
            return None;
        }
        let text = self.any_string(wanted, problems)?;
        if text.trim().is_empty() {
            self.report(problems, Problem::Empty);
            return None;
        }
        Some(text)
    }

    /// The elements of a list; `None` for a null, which counts as "not given", and for another type.
    pub(super) fn list(&self, problems: &mut Problems) -> Option<Vec<Field<'a>>> {
        match &self.node.body {
            Body::List(items) => Some(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, node)| Field {
                        path: self.path.index(index),
                        key_at: node.at,
                        node,
                    })
                    .collect(),
            ),
            _ => {
                if !self.is_null() {
                    self.report(
                        problems,
                        Problem::WrongType { wanted: Wanted::List, found: self.node.found() },
                    );
                }
                None
            }
        }
    }

    /// The entries of a mapping with free keys; `None` as in [`Field::list`]. Keys that are no strings, and all but
    /// the first of equal keys, are left out: they are reported when the text is read.
    pub(super) fn entries(&self, problems: &mut Problems) -> Option<Vec<(&'a str, Field<'a>)>> {
        let Body::Map(entries) = &self.node.body else {
            if !self.is_null() {
                self.report(
                    problems,
                    Problem::WrongType { wanted: Wanted::Mapping, found: self.node.found() },
                );
            }
            return None;
        };
        let mut seen = std::collections::HashSet::new();
        let fields = entries.iter().filter_map(|(key, node)| {
            let name = key.text()?;
            seen.insert(name)
                .then(|| (name, Field { path: self.path.key(name), key_at: key.at, node }))
        });
        Some(fields.collect())
    }

    /// A mapping with known keys; others are reported. `None` as in [`Field::list`].
    pub(super) fn section(
        &self,
        known: &'static [&'static str],
        problems: &mut Problems,
    ) -> Option<Section<'a>> {
        let entries = self.entries(problems)?;
        for (name, field) in &entries {
            if !known.contains(name) {
                let problem = if *name == "<<" {
                    Problem::MergeKey
                } else {
                    // What stands in a list belongs to its element, whatever other sections call so.
                    let listed = matches!(self.path.segments().last(), Some(Segment::Index(_)));
                    let nearest = nearest(name, known, !listed);
                    Problem::UnknownKey { key: shown(name), nearest }
                };
                problems.report(&field.path, field.key_at, problem);
            }
        }
        Some(Section { path: self.path.clone(), at: self.key_at, entries })
    }

    /// As [`Field::section`], but the mapping must be there.
    pub(super) fn required_section(
        &self,
        known: &'static [&'static str],
        problems: &mut Problems,
    ) -> Option<Section<'a>> {
        if self.is_null() {
            self.report(
                problems,
                Problem::WrongType { wanted: Wanted::Mapping, found: Found::Null },
            );
            return None;
        }
        self.section(known, problems)
    }
}

/// A mapping with known keys.
#[derive(Debug)]
pub(super) struct Section<'a> {
    path: FieldPath,
    at: Position,
    entries: Vec<(&'a str, Field<'a>)>,
}

impl<'a> Section<'a> {
    /// The field `name`, if the file has it.
    pub(super) fn get(&self, name: &str) -> Option<&Field<'a>> {
        self.entries.iter().find(|(key, _)| *key == name).map(|(_, field)| field)
    }

    /// The field `name`; its absence is a problem.
    pub(super) fn required(&self, name: &str, problems: &mut Problems) -> Option<&Field<'a>> {
        let field = self.get(name);
        if field.is_none() {
            problems.report(&self.path.key(name), self.at, Problem::Required);
        }
        field
    }
}

/// The known key that was most likely meant: of this section, else one of another section spelt the same.
fn nearest(key: &str, known: &[&str], elsewhere: bool) -> Option<String> {
    // Longer than any typo; keeps hostile keys cheap.
    if key.len() > 48 {
        return None;
    }
    let plain = |key: &str| key.replace(['_', '-', ' '], "").to_lowercase();
    let wanted = plain(key);
    if let Some(same) = known.iter().find(|known| plain(known) == wanted) {
        return Some((*same).to_owned());
    }
    for (section, keys) in ELSEWHERE.iter().filter(|_| elsewhere) {
        if let Some(same) = keys.iter().find(|known| plain(known) == wanted) {
            return Some(format!("{section}{same}"));
        }
    }
    known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&wanted, &plain(known)), *known))
        .filter(|(distance, known)| {
            let known = plain(known);
            let begun = known.len() >= 4 && wanted.starts_with(&known);
            begun || *distance <= (known.len().min(key.chars().count()) / 3).max(1)
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_found_here_or_in_its_own_section() {
        for (key, known, expected) in [
            ("gpu_num", RESOURCES, Some("gpuNum")),
            ("gpuNumber", RESOURCES, Some("gpuNum")),
            ("GPUTYPE", RESOURCES, Some("gpuType")),
            ("gpuNun", RESOURCES, Some("gpuNum")),
            ("enviroment", TOP, Some("environment")),
            ("strage", TOP, Some("storage")),
            ("image", TOP, Some("environment.image")),
            ("gpuNum", JOB, Some("resources.gpuNum")),
            ("max_duration", JOB, Some("maxDuration")),
            ("checkpoints", STORAGE, Some("checkpoint")),
            ("x", TOP, None),
            ("replicas", RESOURCES, None),
            ("路径", WORKDIR, None),
        ] {
            assert_eq!(nearest(key, known, true).as_deref(), expected, "{key}");
        }
        assert_eq!(nearest("name", WORKDIR, false), None, "an element's own keys only");
        assert_eq!(nearest(&"k".repeat(100_000), TOP, true), None);
    }
}
