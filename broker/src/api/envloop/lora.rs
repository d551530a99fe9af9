//! What makes two files a LoRA adapter: its configuration, and the head of its weights.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::runners::parse_strict;

/// Longest name of a base model in code points.
const MOST_NAME: usize = 512;
const METADATA: &str = "__metadata__";

/// What an adapter says of itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Lora {
    pub(super) base_model: String,
    pub(super) rank: u64,
    pub(super) tensors: usize,
}

/// Why files with an adapter's names are none. They stay artifacts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unfit {
    /// One of the two files is not there.
    Incomplete,
    /// The configuration is too large, or no JSON object whose keys are there once.
    ConfigUnreadable,
    /// Another kind of adapter.
    NotLora,
    /// No base model, or none that can be a name.
    NoBaseModel,
    /// No rank above 0.
    NoRank,
    /// No modules that it is for.
    NoTargets,
    /// The weights do not begin with a header of a sensible length.
    HeaderLength,
    /// The header is no JSON object of tensors whose names are there once.
    HeaderUnreadable,
    /// A tensor of a kind that safetensors does not have.
    TensorKind,
    /// A tensor's place is not as long as its shape says.
    TensorSize,
    /// The tensors leave gaps, overlap, or do not end with the file.
    TensorsMisplaced,
    /// No LoRA weights, or one half of a pair without the other.
    NoLoraWeights,
}

impl Unfit {
    /// The word on the wire.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Incomplete => "file_missing",
            Self::ConfigUnreadable => "config_unreadable",
            Self::NotLora => "not_lora",
            Self::NoBaseModel => "base_model_invalid",
            Self::NoRank => "rank_invalid",
            Self::NoTargets => "target_modules_invalid",
            Self::HeaderLength => "header_length_invalid",
            Self::HeaderUnreadable => "header_unreadable",
            Self::TensorKind => "tensor_dtype_unknown",
            Self::TensorSize => "tensor_size_invalid",
            Self::TensorsMisplaced => "tensors_misplaced",
            Self::NoLoraWeights => "lora_weights_missing",
        }
    }
}

/// The base model and rank that an adapter's configuration states.
pub(super) fn config(text: &[u8]) -> Result<(String, u64), Unfit> {
    let config = parse_strict(text).map_err(|_| Unfit::ConfigUnreadable)?;
    if !config.is_object() {
        return Err(Unfit::ConfigUnreadable);
    }
    let kind = config["peft_type"].as_str().unwrap_or_default();
    if !kind.eq_ignore_ascii_case("lora") {
        return Err(Unfit::NotLora);
    }
    let base = config["base_model_name_or_path"].as_str().unwrap_or_default().trim();
    let named = !base.is_empty() && base.chars().count() <= MOST_NAME;
    if !named || base.chars().any(char::is_control) {
        return Err(Unfit::NoBaseModel);
    }
    let rank = config["r"].as_u64().filter(|rank| *rank > 0).ok_or(Unfit::NoRank)?;
    let filled = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
    let good = match &config["target_modules"] {
        text @ Value::String(_) => filled(text),
        Value::Array(items) => !items.is_empty() && items.iter().all(filled),
        _ => false,
    };
    if good { Ok((base.to_owned(), rank)) } else { Err(Unfit::NoTargets) }
}

/// Bytes of one number, by the name of its kind.
fn width(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F64" | "I64" | "U64" => 8,
        "F32" | "I32" | "U32" => 4,
        "F16" | "BF16" | "I16" | "U16" => 2,
        "I8" | "U8" | "BOOL" | "F8_E4M3" | "F8_E5M2" => 1,
        _ => return None,
    })
}

/// Checks a safetensors header: every tensor's size is that of its shape, together they are
/// exactly the rest of the file, and there are pairs of LoRA weights. Returns how many there are.
pub(super) fn header(text: &[u8], data_bytes: u64) -> Result<usize, Unfit> {
    // The format has no blanks before it; those after it fill up.
    if text.first() != Some(&b'{') {
        return Err(Unfit::HeaderUnreadable);
    }
    let Tensors { names, mut spans, problem } =
        serde_json::from_slice(text).map_err(|_| Unfit::HeaderUnreadable)?;
    if let Some(problem) = problem {
        return Err(problem);
    }
    spans.sort_unstable();
    let mut at = 0;
    for (begin, end) in &spans {
        if *begin != at {
            return Err(Unfit::TensorsMisplaced);
        }
        at = *end;
    }
    if at != data_bytes {
        return Err(Unfit::TensorsMisplaced);
    }
    if paired(&names) { Ok(spans.len()) } else { Err(Unfit::NoLoraWeights) }
}

/// Whether there are LoRA weights, and each with its other half.
fn paired(names: &HashSet<String>) -> bool {
    let halves = [("lora_A", "lora_B"), ("lora_embedding_A", "lora_embedding_B")];
    let mut any = false;
    for name in names {
        for (one, other) in halves {
            for (half, twin) in [(one, other), (other, one)] {
                if name.contains(half) {
                    any = true;
                    if !names.contains(&name.replace(half, twin)) {
                        return false;
                    }
                }
            }
        }
    }
    any
}

#[derive(Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Tensor {
    fn problem(&self) -> Option<Unfit> {
        let Some(width) = width(&self.dtype) else { return Some(Unfit::TensorKind) };
        let bytes = self.shape.iter().try_fold(width, |bytes, side| bytes.checked_mul(*side));
        let (begin, end) = self.data_offsets;
        let fits = bytes.is_some() && end.checked_sub(begin) == bytes;
        (!fits).then_some(Unfit::TensorSize)
    }
}

/// What is kept of a header: it can be large, so its tensors are read one by one.
#[derive(Debug, Default)]
struct Tensors {
    names: HashSet<String>,
    spans: Vec<(u64, u64)>,
    problem: Option<Unfit>,
}

impl<'de> Deserialize<'de> for Tensors {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Tensors;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tensors, A::Error> {
        let mut found = Tensors::default();
        while let Some(name) = entries.next_key::<String>()? {
            if name == METADATA {
                entries.next_value::<IgnoredAny>()?;
            } else {
                let tensor: Tensor = entries.next_value()?;
                found.problem = found.problem.or(tensor.problem());
                found.spans.push(tensor.data_offsets);
            }
            if !found.names.insert(name) {
                return Err(A::Error::custom("a name is there twice"));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_adapter_states_its_base_model_and_rank() {
        let good = json!({ "peft_type": "LORA", "base_model_name_or_path": "m", "r": 8, "target_modules": ["q"] });
        assert_eq!(config(good.to_string().as_bytes()), Ok(("m".to_owned(), 8)));
        for (key, value, why) in [
            ("peft_type", json!("IA3"), Unfit::NotLora),
            ("peft_type", json!(1), Unfit::NotLora),
            ("base_model_name_or_path", json!(" "), Unfit::NoBaseModel),
            ("base_model_name_or_path", json!(null), Unfit::NoBaseModel),
            ("base_model_name_or_path", json!("a\nb"), Unfit::NoBaseModel),
            ("base_model_name_or_path", json!("m".repeat(513)), Unfit::NoBaseModel),
            ("r", json!(0), Unfit::NoRank),
            ("r", json!(-8), Unfit::NoRank),
            ("r", json!("8"), Unfit::NoRank),
            ("r", json!(8.5), Unfit::NoRank),
            ("target_modules", json!([]), Unfit::NoTargets),
            ("target_modules", json!(["q", ""]), Unfit::NoTargets),
            ("target_modules", json!(["q", 1]), Unfit::NoTargets),
            ("target_modules", json!(""), Unfit::NoTargets),
            ("target_modules", json!(null), Unfit::NoTargets),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            assert_eq!(config(bad.to_string().as_bytes()), Err(why), "{bad}");
            bad.as_object_mut().unwrap().remove(key);
            assert_eq!(config(bad.to_string().as_bytes()), Err(why), "{bad}");
        }
        let mut regular = good.clone();
        regular["target_modules"] = json!("all-linear");
        assert!(config(regular.to_string().as_bytes()).is_ok());
        let twice = good.to_string().replacen('{', r#"{"r":4,"#, 1);
        for bad in ["[]", "{", "", "null", &twice] {
            assert_eq!(config(bad.as_bytes()), Err(Unfit::ConfigUnreadable), "{bad}");
        }
    }

    fn tensor(dtype: &str, shape: Value, from: u64, to: u64) -> Value {
        json!({ "dtype": dtype, "shape": shape, "data_offsets": [from, to] })
    }

    #[test]
    fn tensors_fill_the_file_exactly() {
        let pair = |a: &Value, b: &Value| json!({ "x.lora_A.weight": a, "x.lora_B.weight": b });
        let whole = |tensors: Value, bytes| header(tensors.to_string().as_bytes(), bytes);
        let a = tensor("F16", json!([2, 3]), 0, 12);
        let b = tensor("BF16", json!([4]), 12, 20);
        let mut good = pair(&a, &b);
        assert_eq!(whole(good.clone(), 20), Ok(2));
        good["__metadata__"] = json!({ "format": "pt" });
        good["y"] = tensor("F32", json!([]), 20, 24);
        let text = format!("{good}     ");
        assert_eq!(header(text.as_bytes(), 24), Ok(3));
        assert_eq!(header(format!(" {good}").as_bytes(), 24), Err(Unfit::HeaderUnreadable));
        for (b, bytes, why) in [
            (b.clone(), 21, Unfit::TensorsMisplaced),
            (b.clone(), 19, Unfit::TensorsMisplaced),
            (tensor("F16", json!([4]), 13, 21), 21, Unfit::TensorsMisplaced),
            (tensor("F16", json!([4]), 11, 19), 19, Unfit::TensorsMisplaced),
            (tensor("F16", json!([2]), 12, 20), 20, Unfit::TensorSize),
            (tensor("F16", json!([4]), 20, 12), 20, Unfit::TensorSize),
            (tensor("F16", json!([u64::MAX, 2]), 12, 20), 20, Unfit::TensorSize),
            (tensor("F17", json!([4]), 12, 20), 20, Unfit::TensorKind),
            (tensor("F16", json!([-4]), 12, 20), 20, Unfit::HeaderUnreadable),
            (tensor("F16", json!([4.5]), 12, 20), 20, Unfit::HeaderUnreadable),
            (json!({ "dtype": "F16", "shape": [4] }), 20, Unfit::HeaderUnreadable),
            (json!([]), 20, Unfit::HeaderUnreadable),
        ] {
            let tensors = pair(&a, &b);
            assert_eq!(whole(tensors.clone(), bytes), Err(why), "{tensors}");
        }
        for alone in ["x.lora_A.weight", "x.lora_B.weight", "x.lora_embedding_A", "x.weight"] {
            let tensors = json!({ alone: a });
            assert_eq!(whole(tensors, 12), Err(Unfit::NoLoraWeights), "{alone}");
        }
        assert_eq!(whole(json!({}), 0), Err(Unfit::NoLoraWeights));
        let twice = format!(r#"{{"x.lora_A":{a},"x.lora_A":{a},"x.lora_B":{b}}}"#);
        for bad in ["not json", "[]", "{", "", &twice] {
            assert_eq!(header(bad.as_bytes(), 20), Err(Unfit::HeaderUnreadable), "{bad}");
        }
    }
}
