//! Whatever the text, it is judged without a panic and with safe sentences.

use proptest::prelude::*;

use super::super::node;
use super::*;

/// A documented file with pieces cut, doubled, replaced and inserted.
fn mutated() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "[", "]", "{", "}", ":", "- ", "? ", "&a ", "*a", "!", "!!", "|", ">", "%", "---\n",
            "...\n", "\n", "  ", "\t", "\"", "'", "\\", "#", "<<: ", "yes", "null", "\u{feff}",
            "\u{202e}", "\u{85}", "\r", "@", "`", "1", "../",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    let edit = (any::<prop::sample::Index>(), 0_usize..12, piece);
    (0..DOCUMENTED.len(), prop::collection::vec(edit, 1..6)).prop_map(|(which, edits)| {
        let mut text: Vec<char> = DOCUMENTED[which].1.chars().collect();
        for (at, cut, piece) in edits {
            let start = at.index(text.len() + 1);
            let end = (start + cut).min(text.len());
            text.splice(start..end, piece.chars());
        }
        text.into_iter().collect()
    })
}

fn judge(text: &str) {
    if let Err(errors) = TaskFile::parse(text) {
        assert_safe(&errors);
        let end = node::end_of(text);
        for error in &errors.errors {
            let at = error.position.unwrap();
            assert!((Position::START..=end).contains(&at), "{at:?} of {end:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_judged(text in any::<String>()) {
        judge(&text);
    }

    #[test]
    fn any_yaml_like_text_is_judged(text in "[-?:,\\[\\]{}#&*!|>'\"%@` \na-c0-2~<=.\t]{0,80}") {
        judge(&text);
        judge(&with(&text));
    }

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(errors) = TaskFile::parse_bytes(&bytes) {
            assert_safe(&errors);
        }
    }

    #[test]
    fn damaged_files_are_judged(text in mutated()) {
        judge(&text);
    }

    #[test]
    fn an_accepted_name_keeps_the_grammar(name in ".{0,70}") {
        let quoted = serde_json::to_string(&name).unwrap();
        if let Ok(file) = TaskFile::parse(&format!("job: {{name: {quoted}}}")) {
            prop_assert_eq!(&file.job.name, &name);
            prop_assert!(name.len() <= 63 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)));
        }
    }
}
