//! `price list` as a cold process.

use crate::figure::{Report, Row, Target};
use crate::shared::{command, fresh_folder, runs, server, timed};
use runwhere_tests::{OurClient, PublishedClient};

const LIST: [&str; 4] = ["price", "list", "--gpu-type", "a100-80g"];

pub(crate) fn measure(report: &mut Report) {
    let folder = fresh_folder("prices-");
    let server = server(folder.path());
    let theirs = PublishedClient::logged_in(folder.path(), &server);
    let ours = OurClient::logged_in(folder.path(), &server);
    let alone = OurClient::new(folder.path());

    let mut published = Row::new("published client, from the server");
    let mut from_server = Row::new("runwhere, from the server");
    let mut bundled = Row::new("runwhere, without a server");
    // Once unmeasured: programs and libraries come into memory.
    for counts in std::iter::once(false).chain(std::iter::repeat_n(true, runs(10))) {
        for (row, runner) in [
            (&mut published, theirs.runner()),
            (&mut from_server, &ours.runner),
            (&mut bundled, &alone.runner),
        ] {
            let (sample, output) = timed(command(runner, &LIST));
            let shown = String::from_utf8_lossy(&output.stdout);
            assert!(shown.contains("a100") || shown.contains("A100"), "no offers: {shown}");
            if counts {
                row.add(sample);
            }
        }
    }
    for row in [&published, &from_server, &bundled] {
        row.print();
    }
    let ratio = |ours: &Row| published.median() / ours.median();
    report.add(
        "price list: published / ours, no server",
        ratio(&bundled),
        "x",
        Target::AtLeast(10.0),
    );
    report.add(
        "price list: published / ours, same server",
        ratio(&from_server),
        "x",
        Target::AtLeast(10.0),
    );
    report.add("price list, no server", bundled.median(), "ms", Target::Recorded);
    report.add("price list, from the server", from_server.median(), "ms", Target::Recorded);
}
