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

/// As [`draw`], for the width of the terminal: where it is narrower, the `spare` columns (whose content stands in another
/// one too, or can be asked for singly) are left out, the first before the second.
#[must_use]
pub fn draw_fitting(header: &[String], rows: &[Vec<String>], spare: &[usize]) -> String {
    match terminal::width() {
        None => draw(header, rows),
        Some(width) => fitted(header, rows, spare, width),
    }
}

fn fitted(header: &[String], rows: &[Vec<String>], spare: &[usize], width: usize) -> String {
    let mut left_out: Vec<usize> = Vec::new();
    let mut next = spare.iter();
    loop {
        let kept = |cells: &[String]| -> Vec<String> {
            let kept = cells.iter().enumerate().filter(|(at, _)| !left_out.contains(at));
            kept.map(|(_, cell)| cell.clone()).collect()
        };
        let rows: Vec<Vec<String>> = rows.iter().map(|row| kept(row)).collect();
        let drawn = draw(&kept(header), &rows);
        // The border has one character for each column of the terminal.
        let wide = drawn.lines().next().is_some_and(|border| border.chars().count() > width);
        match next.next().filter(|_| wide) {
            Some(column) => left_out.push(*column),
            None => return drawn,
        }
    }
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
    fn a_narrow_terminal_shows_fewer_columns_and_never_half_a_key() {
        let header = cells(&["SKU KEY", "平台", "PRICE"]);
        let rows = [cells(&["aws/us-east-1/-/on_demand/p5.48xlarge", "aws", "371.4600"])];
        let of = |width| fitted(&header, &rows, &[1], width);
        assert_eq!(of(200), draw(&header, &rows));
        let narrow = of(56);
        assert!(!narrow.contains("平台") && narrow.contains("371.4600"), "{narrow}");
        assert!(of(10).contains("aws/us-east-1/-/on_demand/p5.48xlarge"), "what is needed stays");
    }

    #[test]
    fn a_hostile_cell_stays_in_its_cell() {
        let drawn = draw(&cells(&["n"]), &[cells(&["a\nb\u{1b}[2J"])]);
        assert_eq!(drawn.lines().count(), 5);
        assert!(!drawn.contains('\u{1b}'));
    }
}
