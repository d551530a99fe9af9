//! A job's fixed profile as a request states it: form only, nothing is looked up.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::declaration::name_is_good;
use super::reference::{ContentKind, Pinned};
use super::schema::{DEPTH, plain};
use crate::api::text::{Words, words};
use crate::runners::refusal::{Code, Refused};

/// The first schema: parameters without a published recipe.
pub(crate) const V1: &str = "envloop.job-profile/v1";
/// The second: a recipe by reference, its parameters apart.
pub(crate) const V2: &str = "envloop.job-profile/v2";
const MOST: usize = 32;

/// A profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What is executed with which parameters.
    pub(super) program: ProfileProgram,
    /// Data by name.
    pub(super) inputs: BTreeMap<String, InputChoice>,
    /// Additions.
    pub(super) plugins: Vec<PluginBinding>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ProfileProgram {
    /// Fixed parameters for the runner's own logic.
    Fixed(Map<String, Value>),
    /// A published recipe and its parameters.
    Recipe(Pinned, Map<String, Value>),
}

/// Data of a profile.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InputChoice {
    pub(super) dataset: Pinned,
    pub(super) config: Option<String>,
    pub(super) split: Option<String>,
}

/// A plugin of a profile.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PluginBinding {
    pub(super) plugin: Pinned,
    pub(super) parameters: Map<String, Value>,
}

fn wrong(place: &str, why: &Words) -> Refused {
    Refused::new(Code::InvalidProfile, why.about(place)).at(place)
}

/// Takes a member; null counts as absent.
fn taken(map: &mut Map<String, Value>, key: &str) -> Option<Value> {
    map.remove(key).filter(|value| !value.is_null())
}

fn text(map: &mut Map<String, Value>, key: &str, place: &str) -> Result<Option<String>, Refused> {
    match taken(map, key) {
        None => Ok(None),
        Some(Value::String(text)) if name_is_good(&text) => Ok(Some(text)),
        Some(_) => Err(wrong(
            &format!("{place}.{key}"),
            &words!(
                "必须是由字母、数字、`.`、`_` 和 `-` 组成的名称",
                "must be a name of letters, digits, `.`, `_` and `-`"
            ),
        )),
    }
}

fn object(value: Value, place: &str) -> Result<Map<String, Value>, Refused> {
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(wrong(place, &words!("必须是对象", "must be an object"))),
    }
}

/// Members that are null count as absent, at every depth: so that one meaning has one text.
fn without_null(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, without_null(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_null).collect(),
        other => other,
    }
}

fn parameters(value: Option<Value>, place: &str) -> Result<Map<String, Value>, Refused> {
    let value = without_null(value.unwrap_or_else(|| json!({})));
    let map = object(value, place)?;
    plain(&Value::Object(map.clone()), DEPTH).map_err(|(path, why)| {
        let place = if path.is_empty() { place.to_owned() } else { format!("{place}.{path}") };
        wrong(&place, &why)
    })?;
    Ok(map)
}

fn ended(map: &Map<String, Value>, place: &str) -> Result<(), Refused> {
    match map.keys().next() {
        None => Ok(()),
        Some(key) => {
            let shown: String =
                key.chars().filter(|c| !c.is_control() && !"[]".contains(*c)).take(64).collect();
            let why = match key.as_str() {
                "path" | "paths" | "file" | "files" | "source" => {
                    words!(
                        "Profile 只引用已发布的内容，不上传任何东西",
                        "profiles name published content; nothing is uploaded with them"
                    )
                }
                "provider" | "executor" | "backend" => {
                    words!("任务在哪里执行由服务端选择", "the server chooses where a job runs")
                }
                _ => words!("未知的字段", "the key is not known"),
            };
            Err(wrong(&format!("{place}.{shown}"), &why))
        }
    }
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// `INVALID_PROFILE` (or `PROFILE_HASH_MISMATCH` where an address and its digest differ), with
    /// the field.
    pub(crate) fn read(value: Value, place: &str) -> Result<Self, Refused> {
        let mut map = object(value, place)?;
        let at = |key: &str| format!("{place}.{key}");
        let schema = taken(&mut map, "schema");
        let schema = schema.as_ref().and_then(Value::as_str).unwrap_or_default();
        let program = match schema {
            V1 => {
                let fixed = parameters(taken(&mut map, "recipe"), &at("recipe"))?;
                ProfileProgram::Fixed(fixed)
            }
            V2 => {
                let recipe = taken(&mut map, "recipe").ok_or_else(|| {
                    let why = words!(
                        "缺少带 uri 和 manifest_sha256 的 recipe",
                        "a recipe with uri and manifest_sha256 is needed"
                    );
                    wrong(&at("recipe"), &why)
                })?;
                let mut recipe = object(recipe, &at("recipe"))?;
                let pinned = Pinned::take(&mut recipe, ContentKind::Recipe, &at("recipe"))?;
                ended(&recipe, &at("recipe"))?;
                let given = parameters(taken(&mut map, "parameters"), &at("parameters"))?;
                ProfileProgram::Recipe(pinned, given)
            }
            _ => {
                let why = words!("必须是 {V1} 或 {V2}", "must be {V1} or {V2}");
                return Err(wrong(&at("schema"), &why));
            }
        };
        let inputs = object(taken(&mut map, "inputs").unwrap_or_else(|| json!({})), &at("inputs"))?;
        if inputs.len() > MOST {
            let why = words!("最多 {MOST} 个输入", "at most {MOST} inputs");
            return Err(wrong(&at("inputs"), &why));
        }
        let mut chosen = BTreeMap::new();
        for (name, input) in inputs {
            if !name_is_good(&name) {
                let why = words!(
                    "名称由字母、数字、`.`、`_` 和 `-` 组成，1 到 64 个",
                    "a name has letters, digits, `.`, `_` and `-`, 1 to 64"
                );
                return Err(wrong(&at("inputs"), &why));
            }
            let place = format!("{place}.inputs.{name}");
            chosen.insert(name, InputChoice::read(input, &place)?);
        }
        let plugins = match taken(&mut map, "plugins") {
            None => Vec::new(),
            Some(Value::Array(items)) if items.len() <= MOST => items,
            Some(_) => {
                let why = words!("必须是最多 {MOST} 项的列表", "must be a list of at most {MOST}");
                return Err(wrong(&at("plugins"), &why));
            }
        };
        let mut bound: Vec<PluginBinding> = Vec::new();
        for (index, item) in plugins.into_iter().enumerate() {
            let place = format!("{place}.plugins.{index}");
            let binding = PluginBinding::read(item, &place)?;
            if bound.iter().any(|other| other.plugin.target.name == binding.plugin.target.name) {
                return Err(wrong(
                    &place,
                    &words!("重复绑定了此插件", "the plugin is bound twice"),
                ));
            }
            bound.push(binding);
        }
        ended(&map, place)?;
        Ok(Self { program, inputs: chosen, plugins: bound })
    }

    /// What it declares to be.
    pub(crate) fn schema(&self) -> &'static str {
        match self.program {
            ProfileProgram::Fixed(_) => V1,
            ProfileProgram::Recipe(..) => V2,
        }
    }

    /// Everything explicit, in one form: absent and empty members are the same.
    pub(crate) fn explicit(&self) -> Value {
        let (recipe, parameters) = match &self.program {
            ProfileProgram::Fixed(fixed) => (Value::Object(fixed.clone()), None),
            ProfileProgram::Recipe(pinned, given) => {
                (pin(pinned), Some(Value::Object(given.clone())))
            }
        };
        let inputs: Map<String, Value> = self
            .inputs
            .iter()
            .map(|(name, input)| {
                let mut shown = pin(&input.dataset);
                shown["config"] = json!(input.config);
                shown["split"] = json!(input.split);
                (name.clone(), shown)
            })
            .collect();
        let plugins: Vec<Value> = self
            .plugins
            .iter()
            .map(|binding| {
                let mut shown = pin(&binding.plugin);
                shown["parameters"] = Value::Object(binding.parameters.clone());
                shown
            })
            .collect();
        json!({
            "schema": self.schema(),
            "recipe": recipe,
            "parameters": parameters,
            "inputs": inputs,
            "plugins": plugins,
        })
    }
}

fn pin(pinned: &Pinned) -> Value {
    json!({ "uri": pinned.target.to_string(), "manifest_sha256": pinned.manifest_sha256 })
}

impl InputChoice {
    fn read(value: Value, place: &str) -> Result<Self, Refused> {
        let mut map = object(value, place)?;
        let dataset = Pinned::take(&mut map, ContentKind::Dataset, place)?;
        let config = text(&mut map, "config", place)?;
        let split = text(&mut map, "split", place)?;
        ended(&map, place)?;
        Ok(Self { dataset, config, split })
    }
}

impl PluginBinding {
    fn read(value: Value, place: &str) -> Result<Self, Refused> {
        let mut map = object(value, place)?;
        let plugin = Pinned::take(&mut map, ContentKind::Plugin, place)?;
        let given = parameters(taken(&mut map, "parameters"), &format!("{place}.parameters"))?;
        ended(&map, place)?;
        Ok(Self { plugin, parameters: given })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest() -> String {
        "0a".repeat(32)
    }

    fn v2() -> Value {
        json!({
            "schema": V2,
            "recipe": { "uri": format!("envloop://recipes/envloop/pev-recipe@{}", digest()), "manifest_sha256": digest() },
            "parameters": { "steps": 1 },
            "inputs": { "data": { "uri": "envloop://datasets/envloop/pev-smoke-data@smoke-1", "manifest_sha256": digest(), "config": "default", "split": "train" } },
            "plugins": [],
        })
    }

    fn refused(change: impl Fn(&mut Value)) -> (&'static str, String) {
        let mut value = v2();
        change(&mut value);
        let refused = Profile::read(value, "spec.profile").unwrap_err();
        let Words { zh, en } = refused.message;
        assert!(!zh.contains(['[', ']']) && !en.contains(['[', ']']), "{zh} {en}");
        (refused.code.as_str(), en)
    }

    #[test]
    fn the_documents_profile_is_read() {
        let profile = Profile::read(v2(), "spec.profile").unwrap();
        assert_eq!(profile.schema(), V2);
        // An integer stays one.
        assert_eq!(profile.explicit()["parameters"], json!({ "steps": 1 }));
        let one = json!({ "schema": V1, "recipe": { "steps": 1, "lr": "0.0002" } });
        assert_eq!(Profile::read(one, "spec.profile").unwrap().schema(), V1);
    }

    #[test]
    fn absent_null_and_empty_are_the_same() {
        let mut bare = v2();
        bare.as_object_mut().unwrap().remove("plugins");
        bare["parameters"] = json!({ "steps": 1, "name": null });
        let print = |value: Value| {
            super::super::canonical(&Profile::read(value, "spec.profile").unwrap().explicit())
        };
        assert_eq!(print(bare), print(v2()));
        let mut other = v2();
        other["inputs"]["data"]["split"] = json!("test");
        assert_ne!(print(other), print(v2()));
    }

    #[test]
    fn every_rule_has_its_code_and_names_the_field() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str, &str); 18] = [
            (|v| v["schema"] = json!("envloop.job-profile/v3"), "INVALID_PROFILE", "schema"),
            (|v| v["schema"] = json!(2), "INVALID_PROFILE", "schema"),
            (|v| v["recipe"] = Value::Null, "INVALID_PROFILE", "recipe"),
            (
                |v| v["recipe"]["uri"] = json!("envloop://recipes/a/b@<recipe-manifest-sha256>"),
                "INVALID_PROFILE",
                "recipe.uri",
            ),
            (
                |v| v["recipe"]["manifest_sha256"] = json!("<recipe-manifest-sha256>"),
                "INVALID_PROFILE",
                "recipe.manifest_sha256",
            ),
            (
                |v| v["recipe"]["manifest_sha256"] = json!("0a0a0a"),
                "INVALID_PROFILE",
                "recipe.manifest_sha256",
            ),
            (
                |v| v["recipe"]["manifest_sha256"] = json!("0b".repeat(32)),
                "PROFILE_HASH_MISMATCH",
                "recipe.manifest_sha256",
            ),
            (|v| v["recipe"]["entry"] = json!("x"), "INVALID_PROFILE", "recipe.entry"),
            (
                |v| {
                    v["inputs"]["data"]["uri"] =
                        json!(format!("envloop://recipes/a/b@{}", "0a".repeat(32)))
                },
                "INVALID_PROFILE",
                "inputs.data.uri",
            ),
            (
                |v| v["inputs"]["data"]["uri"] = json!("envloop://artifacts/a/b@1"),
                "INVALID_PROFILE",
                "inputs.data.uri",
            ),
            (|v| v["inputs"]["data"]["path"] = json!("/etc"), "INVALID_PROFILE", "uploaded"),
            (|v| v["inputs"]["../x"] = v["inputs"]["data"].clone(), "INVALID_PROFILE", "inputs"),
            (|v| v["inputs"]["data"]["split"] = json!("a/b"), "INVALID_PROFILE", "split"),
            (|v| v["parameters"] = json!({ "lr": 0.5 }), "INVALID_PROFILE", "decimal as a string"),
            (|v| v["parameters"] = json!([1]), "INVALID_PROFILE", "parameters"),
            (|v| v["plugins"] = json!({}), "INVALID_PROFILE", "plugins"),
            (|v| v["provider"] = json!("aws"), "INVALID_PROFILE", "server chooses"),
            (|v| v["env"] = json!({}), "INVALID_PROFILE", "spec.profile.env"),
        ];
        for (change, code, words) in cases {
            let (found, message) = refused(change);
            assert_eq!(found, code, "{message}");
            assert!(message.contains(words), "{words}: {message}");
        }
        let (code, message) = refused(|v| {
            let plugin =
                json!({ "uri": "envloop://plugins/a/b@1", "manifest_sha256": "0a".repeat(32) });
            v["plugins"] = json!([plugin, plugin]);
        });
        assert!(code == "INVALID_PROFILE" && message.contains("twice"), "{message}");
    }
}
