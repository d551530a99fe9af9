//! The product against what people use today, as ratios measured in one run. `tests/bench` builds what is needed and
//! starts this; `docs/benches.md` says what each figure means. Nothing here decides whether a build is good.

mod figure;
mod files;
mod ingest;
mod jobs;
mod machine;
mod prices;
mod runners;
mod shared;
mod times;

use figure::Report;

type Part = fn(&mut Report);

/// The parts, in the order in which they run.
const PARTS: [(&str, Part); 6] = [
    ("prices", prices::measure),
    ("files", files::measure),
    ("ingest", ingest::measure),
    ("jobs", jobs::measure),
    ("times", times::measure),
    ("runners", runners::measure),
];

fn main() {
    // `cargo bench` hands over `--bench`; whatever else there is are names of parts.
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for name in &wanted {
        assert!(
            PARTS.iter().any(|(known, _)| known == name),
            "no part {name}; there are: {}",
            PARTS.map(|(known, _)| known).join(", ")
        );
    }
    if std::env::var_os("RUNWHERE_BENCH_DIR").is_none() {
        println!("this measures a release build beside the published client: run tests/bench");
        return;
    }
    machine::describe();
    let mut report = Report::default();
    for (name, measure) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|one| one == name) {
            println!("\n== {name} ({})", machine::load());
            measure(&mut report);
        }
    }
    report.print();
}
