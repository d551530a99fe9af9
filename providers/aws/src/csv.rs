//! The CSV of the price files: quoted cells, `""` for a quote, pieces of any size.

/// Longest line that is accepted; real ones have some kilobytes.
const LONGEST: usize = 1 << 20;

/// Cuts a stream of pieces into lines; a line end inside quotes is none.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    part: Vec<u8>,
    quoted: bool,
}

impl Lines {
    /// Calls `each` for every line that the piece ends.
    pub(crate) fn feed(
        &mut self,
        chunk: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        for &byte in chunk {
            match byte {
                b'\n' if !self.quoted => {
                    each(self.part.strip_suffix(b"\r").unwrap_or(&self.part))?;
                    self.part.clear();
                    continue;
                }
                b'"' => self.quoted = !self.quoted,
                _ => {}
            }
            if self.part.len() >= LONGEST {
                return Err("a line without an end".to_owned());
            }
            self.part.push(byte);
        }
        Ok(())
    }

    /// The last line, where the file does not end with a line end.
    pub(crate) fn rest(&mut self) -> Result<Vec<u8>, String> {
        match self.quoted {
            true => Err("the file ends within quotes".to_owned()),
            false => Ok(std::mem::take(&mut self.part)),
        }
    }
}

/// The cells of a line.
pub(crate) fn cells(line: &str) -> Vec<String> {
    let mut cells = Vec::new();
    let mut cell = String::new();
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quoted) {
            ('"', true) if chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            ('"', _) => quoted = !quoted,
            (',', false) => cells.push(std::mem::take(&mut cell)),
            (c, _) => cell.push(c),
        }
    }
    cells.push(cell);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_may_hold_anything() {
        assert_eq!(cells(r#""a","b, c","d ""e""",,"f""#), ["a", "b, c", "d \"e\"", "", "f"]);
        assert_eq!(cells(""), [""]);
    }

    #[test]
    fn lines_come_whole_from_pieces_of_any_size() {
        let text = b"one\r\n\"two\nlines\",2\nlast";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut all = Vec::new();
            for piece in text.chunks(size) {
                lines
                    .feed(piece, |line| {
                        all.push(String::from_utf8(line.to_vec()).unwrap());
                        Ok(())
                    })
                    .unwrap();
            }
            all.push(String::from_utf8(lines.rest().unwrap()).unwrap());
            assert_eq!(all, ["one", "\"two\nlines\",2", "last"], "pieces of {size}");
        }
        let mut lines = Lines::default();
        lines.feed(b"\"open", |_| Ok(())).unwrap();
        assert!(lines.rest().is_err());
    }
}
