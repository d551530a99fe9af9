//! From a cloud's long text to a model: longest name first, and nothing rather than a near guess.

use super::{GpuModel, fold};

/// Names of several models that only their memory tells apart.
const FAMILIES: [&str; 7] = ["A100", "H100", "V100", "P100", "GH200", "RTX 4090", "A800"];

/// Words after a name that make it the name of something else.
const SUFFIXES: [&str; 19] = [
    "ti",
    "super",
    "s",
    "d",
    "ada",
    "pro",
    "max",
    "maxq",
    "q",
    "nvl",
    "xl",
    "x",
    "laptop",
    "mobile",
    "sti",
    "sada",
    "g",
    "blackwell",
    "lite",
];

impl GpuModel {
    /// The model that a text names somewhere (`8x A100 (80 GB SXM4)`, `nvidia-tesla-t4`,
    /// `NVIDIA GeForce RTX 3090`), with the memory of one GPU in MiB where the source states it.
    ///
    /// The longest spelling that stands in the text between word boundaries decides (`B300` is
    /// never `B200`, `L40S` never `L40`, `RTX 6000 Ada` never `RTX 6000`); a name that several
    /// models share needs a memory, from the text or the argument. `None` when nothing fits or two
    /// models fit alike: such a name is listed as unmapped.
    pub fn named(text: &str, memory_mib: Option<u64>) -> Option<&'static GpuModel> {
        let memory = memory_mib.or_else(|| stated_memory(text));
        if let Some(model) = Self::resolve(text) {
            return Some(with_memory(text, memory).unwrap_or(model));
        }
        let words = words(text);
        let mut best: Option<(usize, &str, Option<&'static GpuModel>)> = None;
        let mut twice = false;
        let models = Self::all().iter().flat_map(|model| {
            let names = model.aliases.iter().copied().chain([model.id.as_str(), model.name]);
            names.map(move |name| (name, Some(model)))
        });
        for (name, model) in models.chain(FAMILIES.map(|family| (family, None))) {
            let folded = fold(name);
            // A name of a single letter and digit or two would be found anywhere.
            if folded.len() < 2 || !stands_in(&folded, &words) {
                continue;
            }
            match best {
                Some((length, ..)) if length > folded.len() => {}
                Some((length, _, other)) if length == folded.len() => {
                    twice |= other.map(|m| m.id) != model.map(|m| m.id) && model.is_some();
                }
                _ => {
                    best = Some((folded.len(), name, model));
                    twice = false;
                }
            }
        }
        let (_, name, model) = best?;
        if twice {
            return None;
        }
        with_memory(name, memory).or(model)
    }
}

/// The member of a name's family that has this memory, within 7 %.
fn with_memory(name: &str, memory_mib: Option<u64>) -> Option<&'static GpuModel> {
    let memory = memory_mib?;
    let bare = fold(name);
    let bare =
        ["nvidia", "tesla"].iter().fold(bare.as_str(), |b, p| b.strip_prefix(p).unwrap_or(b));
    let family = FAMILIES.into_iter().find(|family| bare.starts_with(&fold(family)))?;
    let family = fold(family);
    GpuModel::all()
        .iter()
        .filter(|model| {
            let id = fold(model.id.as_str());
            id.strip_prefix(&family).is_some_and(|rest| {
                rest.is_empty()
                    || rest.starts_with(|c: char| c.is_ascii_digit())
                    || rest.starts_with("nvl")
            })
        })
        .filter(|model| near(memory, u64::from(model.memory_gib) * 1024))
        .min_by_key(|model| memory.abs_diff(u64::from(model.memory_gib) * 1024))
}

/// Whether a stated memory is a model's: clouds mix decimal and binary units (up to 7 % apart).
pub(super) fn near(stated_mib: u64, true_mib: u64) -> bool {
    true_mib > 0 && stated_mib.abs_diff(true_mib).saturating_mul(100) <= true_mib * 7
}

/// The memory in a text: `80GB`, `80 GB`, `80G`.
fn stated_memory(text: &str) -> Option<u64> {
    let words = words(text);
    words.iter().enumerate().find_map(|(at, word)| {
        let digits = word.trim_end_matches(['g', 'b', 'i']);
        let unit = &word[digits.len()..];
        let number: u64 = digits.parse().ok().filter(|gib| (4..=1024).contains(gib))?;
        let next = words.get(at + 1).map_or("", String::as_str);
        let unit = if unit.is_empty() { next } else { unit };
        matches!(unit, "g" | "gb" | "gib").then_some(number * 1024)
    })
}

fn words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(|word| word.to_lowercase())
        .collect()
}

/// Whether a folded name stands in the text from the start of a word to the end of a word, and the
/// next word does not make another name of it.
fn stands_in(name: &str, words: &[String]) -> bool {
    (0..words.len()).any(|start| {
        let mut rest = name;
        for (at, word) in words.iter().enumerate().skip(start) {
            match rest.strip_prefix(word.as_str()) {
                Some("") => {
                    let next = words.get(at + 1).map_or("", String::as_str);
                    return !SUFFIXES.contains(&next);
                }
                Some(left) => rest = left,
                None => return false,
            }
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Option<&'static str> {
        GpuModel::named(text, None).map(|model| model.id.as_str())
    }

    #[test]
    fn long_texts_of_clouds_name_their_model() {
        for (text, want) in [
            ("8x A100 (80 GB SXM4)", "a100-80g"),
            ("nvidia-tesla-t4", "t4"),
            ("nvidia-tesla-a100", "a100-40g"),
            ("nvidia-a100-80gb", "a100-80g"),
            ("NVIDIA A100-SXM4-80GB", "a100-80g"),
            ("NVIDIA H100 80GB HBM3", "h100-80g"),
            ("NVIDIA GeForce RTX 3090", "rtx-3090"),
            ("1x L40S (48 GB)", "l40s"),
            ("Tesla V100-SXM2-16GB", "v100-16g"),
            ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
            ("Standard A10 v5", "a10"),
        ] {
            assert_eq!(named(text).unwrap_or(""), want, "{text}");
        }
    }

    #[test]
    fn pr_058_a_longer_name_is_never_its_beginning() {
        assert_eq!(named("NVIDIA B300 SXM6 AC"), Some("b300"));
        assert_eq!(named("8x B300"), Some("b300"));
        for unknown in ["B3000", "A1000", "L400", "RTX 3090 Mobile Max", "Ascend 9100", ""] {
            assert_eq!(named(unknown), None, "{unknown}");
        }
        assert_ne!(named("NVIDIA GeForce RTX 4070 Ti SUPER"), named("NVIDIA GeForce RTX 4070"));
    }

    #[test]
    fn memory_tells_members_of_a_family_apart() {
        let of = |text, mib| GpuModel::named(text, Some(mib)).map(|model| model.id.as_str());
        assert_eq!(of("A100", 40_960), Some("a100-40g"));
        assert_eq!(of("A100", 81_920), Some("a100-80g"));
        assert_eq!(of("H100", 95_830), Some("h100-nvl-94g"));
        assert_eq!(of("V100", 32_768), Some("v100-32g"));
        assert_eq!(of("A100", 49_152), None);
    }
}
