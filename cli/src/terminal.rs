//! What is known about the terminal, and what may be written to it.

use std::borrow::Cow;
use std::io::{self, BufRead, IsTerminal, Read, Write};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

/// Whether a person sits at standard input.
#[must_use]
pub fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Whether standard output is a terminal.
#[must_use]
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// How many columns standard output shows; `None` where it is no terminal.
#[must_use]
pub fn width() -> Option<usize> {
    if !stdout_is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Whether standard error is a terminal.
#[must_use]
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Makes a text harmless inside a sentence or a table: one line, no control characters, no bidirectional overrides.
#[must_use]
pub fn one_line(text: &str) -> Cow<'_, str> {
    let harmful = |c| is_hostile(c) || c == '\n' || c == '\t';
    if !text.chars().any(harmful) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if harmful(c) { '\u{fffd}' } else { c }).collect())
}

/// Makes several lines harmless: as [`one_line`], but line ends and tabs stay.
#[must_use]
pub fn lines(text: &str) -> String {
    text.chars()
        .map(|c| if is_hostile(c) && c != '\n' && c != '\t' { '\u{fffd}' } else { c })
        .collect()
}

fn is_hostile(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Makes a program's log line harmless for a terminal: colours, tabs and carriage returns stay, every other escape sequence and
/// control character goes (window titles, clipboard writes, cursor reports).
#[must_use]
pub fn log_line(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' if rest.peek() == Some(&'[') => {
                rest.next();
                let mut sequence = String::from("\u{1b}[");
                for c in rest.by_ref() {
                    sequence.push(c);
                    if ('\u{40}'..='\u{7e}').contains(&c) {
                        break;
                    }
                }
                // Colours, and "erase this line", which progress bars use.
                if sequence.ends_with('m') || sequence.ends_with('K') {
                    kept.push_str(&sequence);
                }
            }
            '\u{1b}' if matches!(rest.peek(), Some(']' | 'P' | 'X' | '^' | '_')) => {
                let mut before = ' ';
                for c in rest.by_ref() {
                    if c == '\u{7}' || (before == '\u{1b}' && c == '\\') {
                        break;
                    }
                    before = c;
                }
            }
            '\u{1b}' => {
                rest.next();
            }
            '\t' | '\r' => kept.push(c),
            c if c.is_control() => {}
            c => kept.push(c),
        }
    }
    kept
}

/// Asks a yes-or-no question on the terminal; an end of input means no.
pub fn confirm(question: &str) -> bool {
    let mut stderr = io::stderr();
    let _ = write!(stderr, "{question} [y/N] ");
    let _ = stderr.flush();
    let mut answer = String::new();
    match io::stdin().lock().read_line(&mut answer) {
        Ok(_) => matches!(answer.trim().to_lowercase().as_str(), "y" | "yes" | "是"),
        Err(_) => false,
    }
}

/// Reads one line from the terminal without showing it.
///
/// # Errors
/// What the terminal answers.
pub fn hidden_line(prompt: &str) -> io::Result<String> {
    let stdin = io::stdin();
    let mut stderr = io::stderr();
    let _ = write!(stderr, "{prompt}");
    let _ = stderr.flush();
    let before = tcgetattr(&stdin)?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    let restored = tcsetattr(&stdin, OptionalActions::Flush, &before);
    let _ = writeln!(stderr);
    read?;
    restored?;
    Ok(line)
}

/// Everything on standard input, up to a sensible bound for a token.
///
/// # Errors
/// What the input answers.
pub fn whole_stdin() -> io::Result<String> {
    let mut text = String::new();
    io::stdin().lock().take(64 << 10).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_stay_and_everything_else_goes() {
        assert_eq!(log_line("\u{1b}[31mred\u{1b}[0m\t50%\r"), "\u{1b}[31mred\u{1b}[0m\t50%\r");
        assert_eq!(log_line("a\u{1b}]0;title\u{7}b\u{1b}]52;c;x\u{1b}\\c"), "abc");
        assert_eq!(log_line("a\u{1b}[2Jb\u{1b}[6nc\u{7}\u{1b}cd"), "abcd");
        assert_eq!(log_line("end\u{1b}["), "end");
        assert_eq!(log_line("end\u{1b}"), "end");
    }

    #[test]
    fn a_hostile_name_cannot_move_the_cursor() {
        assert_eq!(one_line("a\u{1b}[2J\nb\u{202e}c"), "a\u{fffd}[2J\u{fffd}b\u{fffd}c");
    }
}
