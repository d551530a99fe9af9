//! A CSV file whose cells are asked for by the name of their column.

use std::collections::HashMap;

use super::ImportError;

pub(super) struct Table {
    columns: HashMap<String, usize>,
    pub(super) reader: csv::Reader<std::io::Cursor<Vec<u8>>>,
}

/// One row.
pub(super) struct Row<'a> {
    columns: &'a HashMap<String, usize>,
    pub(super) record: &'a csv::StringRecord,
}

impl Table {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, ImportError> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf".as_slice()).unwrap_or(bytes);
        let mut reader = csv::ReaderBuilder::new()
            .flexible(true)
            .from_reader(std::io::Cursor::new(bytes.to_vec()));
        let header = reader.headers().map_err(|error| ImportError::Csv(error.to_string()))?;
        let columns =
            header.iter().enumerate().map(|(at, name)| (name.trim().to_owned(), at)).collect();
        Ok(Self { columns, reader })
    }

    pub(super) fn has(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    /// Whether one column stands before another.
    pub(super) fn before(&self, one: &str, other: &str) -> bool {
        match (self.columns.get(one), self.columns.get(other)) {
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
                    take(Ok(Row { columns: &self.columns, record: &record }));
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
        self.columns.get(column).and_then(|at| self.record.get(*at)).unwrap_or("").trim()
    }

    /// The row for a message.
    pub(super) fn text(&self) -> String {
        let text: Vec<&str> = self.record.iter().collect();
        text.join(",").chars().take(160).collect()
    }
}
