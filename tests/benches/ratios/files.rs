//! Scanning and hashing a project.

use crate::figure::{Report, Row, Sample, Target};
use crate::machine::cores;
use crate::shared::{command, folder, plain, runs, timed};
use runwhere_tests::{OurClient, PublishedClient};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FOLDERS: usize = 200;
const FILES_IN_EACH: usize = 100;
/// One large file in each folder, and small ones: together 2 GB.
const LARGE: usize = 7_000_000;
const SMALL: usize = 30_300;

/// The published client's own functions, timed from inside: neither its start nor its imports count.
const THEIR_SCAN: &str = "
import sys, time
from pathlib import Path
from runwhere.sync.ignore import build_ignore_spec
from runwhere.sync.scanner import scan
here = Path.cwd()
start, used = time.perf_counter(), time.process_time()
files = scan(here, build_ignore_spec(here))
print(time.perf_counter() - start, time.process_time() - used)
assert len(files) == int(sys.argv[1]), len(files)
";

const OUR_SCAN: [&str; 5] = ["sync", "--dry-run", "-y", "-f", "train.yaml"];

pub(crate) fn measure(report: &mut Report) {
    let tree = Tree::ready();
    let rounds = runs(5);
    let mut their_first = Row::new("published client, first scan (from inside)");
    let mut their_again = Row::new("published client, unchanged (from inside)");
    let mut our_first = Row::new("runwhere, first scan (whole process)");
    let mut our_again = Row::new("runwhere, unchanged (whole process)");
    let mut openssl = Row::new("openssl dgst -sha256 on all processors");
    for _ in 0..rounds {
        // Alternating, so that what else the machine does hits all alike. Each round has homes without a cache.
        let theirs = PublishedClient::new(&tree.folder);
        let ours = OurClient::new(&tree.folder);
        let mut scanner = theirs.runner().clone();
        scanner.program = scanner.program.with_file_name("python");
        their_first.add(tree.their_scan(&scanner));
        our_first.add(timed(command(&ours.runner, &OUR_SCAN)).0);
        openssl.add(tree.openssl());
        for _ in 0..2 {
            their_again.add(tree.their_scan(&scanner));
            our_again.add(timed(command(&ours.runner, &OUR_SCAN)).0);
        }
    }
    for row in [&their_first, &our_first, &openssl, &their_again, &our_again] {
        row.print();
    }
    let ratio = |a: &Row, b: &Row| a.median() / b.median();
    report.add(
        "first scan: published / ours",
        ratio(&their_first, &our_first),
        "x",
        Target::AtLeast(2.0),
    );
    report.add(
        "unchanged scan: published / ours",
        ratio(&their_again, &our_again),
        "x",
        Target::AtLeast(8.0),
    );
    report.add(
        "hashing: openssl / our whole first scan",
        ratio(&openssl, &our_first),
        "x",
        Target::AtLeast(0.9),
    );
    // On a busy machine these say more: what else runs takes time from the three in different measure.
    let ratio = |a: &Row, b: &Row| a.processor_median() / b.processor_median();
    for (name, a, b) in [
        ("first scan, processor time: published / ours", &their_first, &our_first),
        ("unchanged scan, processor time: published / ours", &their_again, &our_again),
        ("hashing, processor time: openssl / our first scan", &openssl, &our_first),
    ] {
        report.add(name, ratio(a, b), "x", Target::Recorded);
    }
    let speed = tree.bytes as f64 / 1e6 / (our_first.median() / 1000.0);
    report.add("first scan", speed, "MB/s", Target::Recorded);
}

/// A project of many files, kept for the next run.
struct Tree {
    folder: PathBuf,
    list: PathBuf,
    files: usize,
    bytes: u64,
}

impl Tree {
    fn ready() -> Self {
        let folder = folder().join("tree");
        let list = folder.with_extension("list");
        if !list.exists() {
            println!("  writing {} files", FOLDERS * FILES_IN_EACH);
            write(&folder, &list);
        }
        let mut tree = Tree { folder, list, files: 0, bytes: 0 };
        // Reading all brings the files into memory, for everyone alike.
        for path in fs::read(&tree.list).expect("the list").split(|byte| *byte == 0) {
            let path = std::str::from_utf8(path).expect("names are plain");
            if !path.is_empty() {
                tree.files += 1;
                tree.bytes += fs::read(tree.folder.join(path)).expect("a file").len() as u64;
            }
        }
        tree.settle();
        println!("  {} files, {} MB", tree.files, tree.bytes / 1_000_000);
        tree
    }

    /// Waits until the files are old enough to be trusted: a hash of a file that was just written is not kept.
    fn settle(&self) {
        let written = fs::metadata(&self.list).and_then(|data| data.modified()).expect("a time");
        runwhere_tests::eventually("the files are some seconds old", || {
            (written.elapsed().ok()? > Duration::from_secs(4)).then_some(())
        });
    }

    fn their_scan(&self, python: &runwhere_tests::Runner) -> Sample {
        let (_, output) = timed(command(python, &["-c", THEIR_SCAN, &self.files.to_string()]));
        let said = String::from_utf8_lossy(&output.stdout);
        let mut seconds = said.split_whitespace().map(|text| {
            Duration::from_secs_f64(text.parse().unwrap_or_else(|_| panic!("no time: {said}")))
        });
        let wall = seconds.next().expect("the time that passed");
        Sample { wall, cpu: seconds.next() }
    }

    fn openssl(&self) -> Sample {
        let processes = cores().to_string();
        let arguments = ["-0", "-P", &processes, "-n", "100", "openssl", "dgst", "-sha256"];
        let mut command = plain("xargs", &arguments, &self.folder);
        command.stdin(File::open(&self.list).expect("the list"));
        timed(command).0
    }
}

fn write(folder: &Path, list: &Path) {
    let _ = fs::remove_dir_all(folder);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = vec![0; LARGE + FOLDERS * FILES_IN_EACH * 8];
    for chunk in noise.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
    let mut names = Vec::new();
    for number in 0..FOLDERS * FILES_IN_EACH {
        let name =
            format!("part-{:03}/file-{:02}.bin", number / FILES_IN_EACH, number % FILES_IN_EACH);
        let path = folder.join(&name);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
        let large = number % FILES_IN_EACH == 0;
        let size = if large { LARGE } else { SMALL / 2 + (number * 7919) % SMALL };
        // The same noise from another place on: no two files are alike.
        fs::write(&path, &noise[number * 8..][..size]).expect("a file");
        names.push(name);
    }
    let yaml = "version: v1\nkind: Training\njob:\n  name: bench\nenvironment:\n  command: [\"true\"]\nresources:\n  \
                gpuNum: 1\n  gpuType: a100-80g\nstorage:\n  workdirs:\n    - path: \".\"\n";
    fs::write(folder.join("train.yaml"), yaml).expect("a file");
    names.push("train.yaml".to_owned());
    // Last, so that an unfinished tree is written again.
    let mut file = File::create(list).expect("the list");
    file.write_all(names.join("\0").as_bytes()).expect("the list");
}
