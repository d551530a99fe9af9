//! Tables as the documents show them.

use comfy_table::{ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle};

use crate::terminal;

const STYLE: TableStyle = TableStyle::new()
    .top_border(LineStyle::new('┌', '─', '┬', '┐'))
    .header_lines(ContentLineStyle::new('│', '│', '│'))
    .header_separator(LineStyle::new('├', '─', '┼', '┤'))
    .content_lines(ContentLineStyle::new('│', '│', '│'))
    .bottom_border(LineStyle::new('└', '─', '┴', '┘'));

/// Draws a table; Chinese characters count two columns. Cells never wrap: what is printed can be copied and searched.
#[must_use]
pub fn draw(header: &[String], rows: &[Vec<String>]) -> String {
    let clean = |cells: &[String]| {
        cells.iter().map(|cell| terminal::one_line(cell).into_owned()).collect::<Vec<_>>()
    };
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(clean(header));
    for row in rows {
        table.add_row(clean(row));
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn the_documents_table_is_drawn_literally() {
        let header = cells(&["名称", "类型", "状态", "GPU", "运行时长", "URL"]);
        let row = cells(&["claude-cli-docs-verify", "training", "running", "1×?", "-", "-"]);
        let expected = "\
┌────────────────────────┬──────────┬─────────┬─────┬──────────┬─────┐
│ 名称                   │ 类型     │ 状态    │ GPU │ 运行时长 │ URL │
├────────────────────────┼──────────┼─────────┼─────┼──────────┼─────┤
│ claude-cli-docs-verify │ training │ running │ 1×? │ -        │ -   │
└────────────────────────┴──────────┴─────────┴─────┴──────────┴─────┘";
        assert_eq!(draw(&header, &[row]), expected);
    }

    #[test]
    fn a_hostile_cell_stays_in_its_cell() {
        let drawn = draw(&cells(&["n"]), &[cells(&["a\nb\u{1b}[2J"])]);
        assert_eq!(drawn.lines().count(), 5);
        assert!(!drawn.contains('\u{1b}'));
    }
}
