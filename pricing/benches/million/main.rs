//! A million offers: building, keeping, loading and asking them, in process and over HTTP; an import;
//! questions while a source is read again; lists against gpuhunt.
//!
//! `cargo bench -p runwhere-pricing --bench million -- load quotes http import refresh` measures some
//! parts, all without a name. `RUNWHERE_BENCH_ROWS` sets another number of offers,
//! `RUNWHERE_BENCH_DIR` another place for files. `docs/benches.md` says what the figures mean.

mod figures;
mod gpuhunt;
mod http;
mod imports;
mod loading;
mod offers;
mod questions;
mod refreshing;

use std::path::Path;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.first().map(String::as_str) {
        // Parts of a measurement in a process of their own.
        Some("load-child") => return loading::child(Path::new(&words[1])),
        Some("serve-child") => return http::child(Path::new(&words[1])),
        Some("gpuhunt-child") => return gpuhunt::child(&words[1..]),
        _ => {}
    }
    let wanted = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    figures::machine();
    let folder = figures::folder();
    if ["load", "quotes", "http"].into_iter().any(wanted) {
        loading::prepare(&folder);
    }
    if wanted("load") {
        loading::measure(&folder);
    }
    if wanted("quotes") {
        questions::measure(&folder);
    }
    if wanted("http") {
        http::routed(&folder);
        http::measure(&folder);
    }
    if wanted("import") {
        imports::measure();
    }
    if wanted("refresh") {
        refreshing::measure(&folder);
    }
    std::fs::remove_dir_all(folder).expect("removed");
}
