//! A program's output on its way through agent and server onto the disk.

use crate::figure::{Report, Row, Sample, Target};
use crate::machine::{megabytes, now};
use crate::shared::{folder, fresh_folder, plain, runs, server, submitted, timed};
use runwhere_tests::{Processes, Project, Server, eventually, eventually_within};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

const BYTES: u64 = 1_000_000_000;

pub(crate) fn measure(report: &mut Report) {
    let log = log_file();
    let mut copy = Row::new("cat into dd conv=fsync");
    let mut ours = Row::new("program's start to job's end");
    let (mut server_peak, mut agent_peak) = (0.0_f64, 0.0_f64);
    for _ in 0..runs(5) {
        copy.add(copied(&log));
        let folder = fresh_folder("ingest-");
        sync_disk();
        let run = Ingest::run(&log, folder.path());
        ours.add(run.time);
        server_peak = server_peak.max(run.server_peak);
        agent_peak = agent_peak.max(run.agent_peak);
        println!(
            "    stored {:.0} MB; server {:.0} MB, agent {:.0} MB at most",
            run.stored_megabytes, run.server_peak, run.agent_peak
        );
    }
    copy.print();
    ours.print();
    let megabytes_per_second = |row: &Row| BYTES as f64 / 1e6 / (row.median() / 1000.0);
    let ratio = copy.median() / ours.median();
    report.add("log ingest: dd / ours", ratio, "x", Target::AtLeast(0.5));
    report.add("log ingest: peak memory of the server", server_peak, "MB", Target::AtMost(150.0));
    report.add("log ingest: peak memory of the agent", agent_peak, "MB", Target::AtMost(150.0));
    report.add("log ingest", megabytes_per_second(&ours), "MB/s", Target::Recorded);
    report.add("cat into dd", megabytes_per_second(&copy), "MB/s", Target::Recorded);
}

/// Lines as a training program prints them, kept for the next run.
fn log_file() -> PathBuf {
    let path = folder().join("program.log");
    if fs::metadata(&path).is_ok_and(|data| data.len() >= BYTES) {
        return path;
    }
    println!("  writing {} MB of log", BYTES / 1_000_000);
    let unfinished = path.with_extension("new");
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&unfinished).expect("a file"));
    let (mut written, mut step, mut state) = (0_u64, 0_u64, 88_172_645_463_325_252_u64);
    while written < BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        step += 1;
        let line = format!(
            "2026-07-31 12:{:02}:{:02},{:03} INFO train: epoch {} step {step} loss={}.{:06} grad_norm={}.{:04} lr=3.{:05}e-05 \
             tokens/s={} mem={} MiB\n",
            step / 600 % 60,
            step / 10 % 60,
            state % 1000,
            step / 10_000,
            state >> 8 & 7,
            (state >> 11) % 1_000_000,
            state >> 31 & 3,
            (state >> 33) % 10_000,
            step % 100_000,
            180_000 + (state >> 47) % 9_000,
            70_000 + (state >> 60),
        );
        out.write_all(line.as_bytes()).expect("the disk has room");
        written += line.len() as u64;
    }
    out.flush().expect("the disk has room");
    fs::rename(unfinished, &path).expect("a file");
    path
}

fn copied(log: &Path) -> Sample {
    // In memory, for both alike.
    let mut file = File::open(log).expect("the log");
    std::io::copy(&mut file, &mut std::io::sink()).expect("the log");
    let out = log.with_extension("copy");
    sync_disk();
    let script =
        format!("cat '{}' | dd of='{}' bs=1M conv=fsync status=none", log.display(), out.display());
    let (sample, _) = timed(plain("sh", &["-c", &script], &folder()));
    fs::remove_file(out).expect("the copy");
    sample
}

/// Earlier writes must not be in the way.
fn sync_disk() {
    timed(plain("sync", &[], Path::new("/")));
}

struct Ingest {
    time: Sample,
    server_peak: f64,
    agent_peak: f64,
    stored_megabytes: f64,
}

impl Ingest {
    fn run(log: &Path, folder: &Path) -> Self {
        let server = server(folder);
        let api = server.api();
        let program = format!("date +%s%N >\"$CONTROL/started\"\ncat '{}'\n", log.display());
        let project = Project::new("flood", &program);
        let job = submitted(&api, &project, &program);
        let control = project.control();
        let agent = eventually("the agent runs", || agent_of(&server));
        let (mut server_peak, mut agent_peak) = (0.0_f64, 0.0_f64);
        let ended = eventually_within(Duration::from_secs(180), "the flood ends", || {
            // Asking takes processor time from what is measured.
            std::thread::sleep(Duration::from_millis(40));
            let peak = |pid, known: f64| megabytes(pid, "VmHWM").unwrap_or(0.0).max(known);
            server_peak = peak(server.pid(), server_peak);
            agent_peak = peak(agent, agent_peak);
            let found = api.job(&job);
            let status = found["status"].as_str().unwrap_or_default();
            matches!(status, "succeeded" | "failed" | "stopped").then_some(found)
        });
        let end = now();
        assert_eq!(ended["status"], "succeeded", "{ended}");
        let start = control.read("started").expect("the program wrote it");
        let start = Duration::from_nanos(start.trim().parse().expect("nanoseconds"));
        let wanted = last_line(log);
        let lines = api.program_lines(&job);
        assert_eq!(lines.last(), Some(&wanted), "the log is complete");
        Ingest {
            time: Sample::from(end - start),
            server_peak,
            agent_peak,
            stored_megabytes: size_of(&server.data_dir().join("logs")) as f64 / 1e6,
        }
    }
}

fn agent_of(server: &Server) -> Option<u32> {
    let mut agents = Processes::of(server.data_dir()).0.into_iter().filter(|id| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"agent")
    });
    agents.next_back().and_then(|id| u32::try_from(id).ok())
}

fn last_line(log: &Path) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = File::open(log).expect("the log");
    file.seek(SeekFrom::End(-4096)).expect("the log is longer");
    let mut end = String::new();
    file.read_to_string(&mut end).expect("plain text");
    end.lines().last().expect("lines").to_owned()
}

fn size_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => size_of(&entry.path()),
            Ok(data) => data.len(),
            Err(_) => 0,
        })
        .sum()
}
