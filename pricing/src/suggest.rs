//! What a mistyped GPU name may have meant. Suggestions are shown, never used.

use runwhere_model::{GpuModel, GpuModelId};

const MOST: usize = 5;

/// The models whose names are nearest to a text that names none, best first; at most five.
pub fn suggest(text: &str) -> Vec<GpuModelId> {
    let wanted = fold(text);
    // A hostile length must not cost time; no model's name is nearly as long.
    if wanted.is_empty() || wanted.len() > 64 {
        return Vec::new();
    }
    // `a100` is the beginning of two models' names: these are meant before any other.
    let part = ranked(|name| {
        (wanted.len() >= 2 && name.contains(&wanted))
            .then(|| usize::from(!name.starts_with(&wanted)))
    });
    if !part.is_empty() {
        return part;
    }
    let allowed = match wanted.chars().count() {
        0..=2 => 0,
        3..=4 => 1,
        5..=8 => 2,
        _ => 3,
    };
    ranked(|name| {
        let distance = strsim::damerau_levenshtein(&wanted, name);
        (distance <= allowed).then_some(distance)
    })
}

fn ranked(distance: impl Fn(&str) -> Option<usize>) -> Vec<GpuModelId> {
    let mut found: Vec<(usize, usize, GpuModelId)> = GpuModel::all()
        .iter()
        .enumerate()
        .filter_map(|(place, model)| {
            let spellings = model.aliases.iter().copied().chain([model.id.as_str(), model.name]);
            let nearest = spellings.filter_map(|name| distance(&fold(name))).min()?;
            Some((nearest, place, model.id))
        })
        .collect();
    found.sort();
    found.into_iter().take(MOST).map(|(_, _, id)| id).collect()
}

fn fold(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, ' ' | '-' | '_')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&'static str> {
        suggest(text).into_iter().map(GpuModelId::as_str).collect()
    }

    #[test]
    fn typos_find_their_model() {
        assert_eq!(names("a100-80gg").first(), Some(&"a100-80g"));
        assert_eq!(names("l40ss").first(), Some(&"l40s"));
        assert_eq!(names("h1oo-80g").first(), Some(&"h100-80g"));
        assert_eq!(names("A100"), ["a100-80g", "a100-40g"]);
        assert!(names("RTX 6000").contains(&"rtx-6000-ada"));
        assert!(names("RTX 6000").contains(&"quadro-rtx-6000"));
    }

    #[test]
    fn nonsense_finds_nothing() {
        for text in ["", " - ", "zz", "quantum-gpu-9000-ultra", &"a".repeat(10_000)] {
            assert!(names(text).is_empty(), "{:?}", &text[..text.len().min(20)]);
        }
    }
}
