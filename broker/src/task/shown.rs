//! Foreign text made safe to stand in a sentence.

use std::fmt::Write as _;

/// Longest piece of foreign text repeated in a sentence, in characters.
const MAX_SHOWN: usize = 64;

/// Makes foreign text safe to show: at most 64 characters, no control, direction or invisible characters, and no
/// square brackets (clients read them as markup). What is replaced appears as `\u{hex}`.
pub(super) fn shown(text: &str) -> String {
    limited(text, MAX_SHOWN)
}

/// As [`shown`], with another limit on the number of characters.
pub(super) fn limited(text: &str, max: usize) -> String {
    let mut safe = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == max {
            safe.push('…');
            break;
        }
        if c == '[' || c == ']' || is_deceptive(c) {
            // Writing into a String cannot fail.
            let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Characters that change how a line is displayed, or are not seen at all.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(u32::from(c),
            0xAD | 0x61C | 0x180E | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F
            | 0xFE00..=0xFE0F | 0xFEFF | 0xFFF0..=0xFFFB | 0xE0000..=0xE0FFF)
}
