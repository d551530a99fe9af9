//! Times that a user waits, and the memory of a server at rest: written down only.

use crate::figure::{Report, Row, Target};
use crate::machine::{megabytes, now};
use crate::shared::{command, fresh_folder, runs, server, submitted};
use runwhere_tests::{OurClient, Project};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

/// So many lines are followed, one about every 10 ms.
const LINES: usize = 1000;
const REST: Duration = Duration::from_secs(5);

pub(crate) fn measure(report: &mut Report) {
    let folder = fresh_folder("times-");
    let server = server(folder.path());
    let client = OurClient::logged_in(folder.path(), &server);
    // At rest means just that: nothing is waited for.
    std::thread::sleep(REST);
    let idle = megabytes(server.pid(), "VmRSS").expect("the server runs");
    report.add("memory of a fresh server at rest", idle, "MB", Target::Recorded);

    let mut first = Row::new("submit to the program's first line");
    let mut late = Row::new("a line's way from the program to `logs -f`");
    let api = server.api();
    for run in 0..runs(5) {
        // Only one run prints many lines; the others end at once.
        let lines = if run == 0 { LINES } else { 1 };
        let program = format!(
            "i=0\nwhile [ $i -lt {lines} ]; do i=$((i + 1)); echo \"at $(date +%s%N)\"; sleep 0.01; done\n"
        );
        let project = Project::new(&format!("first-{run}"), &program);
        let before = now();
        let job = submitted(&api, &project, &program);
        let mut follow = command(&client.runner, &["logs", "-f", project.name()]);
        let mut follow =
            follow.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("runwhere");
        let mut seen = 0;
        for line in BufReader::new(follow.stdout.take().expect("is piped")).lines() {
            let arrived = now();
            let line = line.expect("lines are text");
            let Some(at) = line.strip_prefix("at ") else { continue };
            let at = Duration::from_nanos(at.trim().parse().expect("nanoseconds"));
            if seen == 0 {
                first.add(arrived.saturating_sub(before));
            } else {
                late.add(arrived.saturating_sub(at));
            }
            seen += 1;
        }
        follow.wait().expect("the client ends");
        assert_eq!(seen, lines, "every line arrived once: {:?}", api.job(&job));
        api.wait_released(&job);
    }
    first.print();
    late.print();
    report.add(
        "submit to first program line (API submit, `logs -f`)",
        first.median(),
        "ms",
        Target::Recorded,
    );
    report.add("follow latency, median", late.median(), "ms", Target::Recorded);
    report.add("follow latency, p99", late.quantile(0.99), "ms", Target::Recorded);
    std::thread::sleep(REST);
    let idle = megabytes(server.pid(), "VmRSS").expect("the server runs");
    report.add("memory of a server at rest after these jobs", idle, "MB", Target::Recorded);
}
