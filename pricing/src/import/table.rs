//! A CSV file whose cells are asked for by the name of their column.

use super::ImportError;

pub(super) struct Table<'b> {
    columns: Columns,
    pub(super) reader: csv::Reader<&'b [u8]>,
    lines: usize,
}

/// The names of the columns. There are a dozen: looking through them is quicker than hashing.
struct Columns(Vec<Box<str>>);

impl Columns {
    fn place(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|column| **column == *name)
    }

    /// A name that stands twice: which of the cells counts is anybody's guess.
    fn twice(&self) -> Option<&str> {
        let again = |(at, name): &(usize, &str)| !name.is_empty() && self.place(name) != Some(*at);
        self.0.iter().map(|name| &**name).enumerate().find(again).map(|(_, name)| name)
    }
}

/// One row.
pub(super) struct Row<'a> {
    columns: &'a Columns,
    pub(super) record: &'a csv::StringRecord,
}

/// No table has more rows than room is made for at once: a file of line ends must not take all memory.
const MOST_ROOM: usize = 100_000;

/// Characters of a column's name in a message.
const MOST_NAME: usize = 80;

/// Bytes of a row: no row of prices is near it, and names of that size would stand in every list.
const MOST_ROW: usize = 4096;

/// What no row of prices looks like. A quote that is never closed makes one cell of all rows that follow.
fn odd(record: &csv::StringRecord) -> Option<String> {
    let problem = match record.as_slice() {
        text if text.contains('\n') => "a cell goes on over several lines; is a quote not closed?",
        text if text.len() > MOST_ROW => "longer than any row of prices is",
        _ => return None,
    };
    let line = record.position().map_or(0, csv::Position::line);
    Some(format!("line {line}: {problem}"))
}

impl<'b> Table<'b> {
    pub(super) fn read(bytes: &'b [u8]) -> Result<Self, ImportError> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf".as_slice()).unwrap_or(bytes);
        let mut reader =
            csv::ReaderBuilder::new().flexible(true).buffer_capacity(64 * 1024).from_reader(bytes);
        let header = reader.headers().map_err(|error| ImportError::Csv(error.to_string()))?;
        let columns = Columns(header.iter().map(|name| name.trim().into()).collect());
        if let Some(name) = columns.twice() {
            return Err(ImportError::Twice(name.chars().take(MOST_NAME).collect()));
        }
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        Ok(Self { columns, reader, lines })
    }

    /// For how many rows it is worth to make room.
    pub(super) fn room(&self) -> usize {
        self.lines.min(MOST_ROOM)
    }

    pub(super) fn has(&self, column: &str) -> bool {
        self.columns.place(column).is_some()
    }

    /// Whether one column stands before another.
    pub(super) fn before(&self, one: &str, other: &str) -> bool {
        match (self.columns.place(one), self.columns.place(other)) {
            (Some(one), Some(other)) => one < other,
            _ => false,
        }
    }

    /// Calls for every row; a row that is no CSV is handed on as an error with its line.
    pub(super) fn each(mut self, mut take: impl FnMut(Result<Row<'_>, String>)) -> usize {
        let mut record = csv::StringRecord::new();
        let mut rows = 0;
        loop {
            match self.reader.read_record(&mut record) {
                Ok(false) => return rows,
                Ok(true) => {
                    rows += 1;
                    take(match odd(&record) {
                        Some(reason) => Err(reason),
                        None => Ok(Row { columns: &self.columns, record: &record }),
                    });
                }
                Err(error) => {
                    rows += 1;
                    let stop = error.is_io_error();
                    take(Err(error.to_string()));
                    if stop {
                        return rows;
                    }
                }
            }
        }
    }
}

impl<'a> Row<'a> {
    /// A cell without blanks around it; empty where the column or the cell is not there.
    pub(super) fn get(&self, column: &str) -> &'a str {
        self.columns.place(column).and_then(|at| self.record.get(at)).unwrap_or("").trim()
    }

    /// The row for a message.
    pub(super) fn text(&self) -> String {
        let text: Vec<&str> = self.record.iter().collect();
        text.join(",").chars().take(160).collect()
    }
}
