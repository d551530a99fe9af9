//! kill -9 at every named point of server, agent and local provider, on real files.
//!
//! The points are those that the binary under test has: a new one is killed at without a word here. Each is killed at
//! in the first scenario that comes by it; one that no scenario comes by fails the suite.

use runwhere_failpoint::{ARMED_VARIABLE, FOLDER_VARIABLE, MARK};
use runwhere_tests::{
    LocalMeter, Project, Runner, Running, STEADY_PROGRAM, ServerOptions, Survivor,
    billed_microseconds, eventually, failpoint_bin, meters,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Prints some lines and keeps its own copy, written first: what was printed is always in it. Leaves two files behind.
const TALKING_PROGRAM: &str = r#"
printf . >>"$CONTROL/starts"
: >"$CONTROL/started"
mkdir -p checkpoints
echo 'a step' >checkpoints/step-1
echo 'a result' >result.txt
i=0
while [ $i -lt 60 ]; do
    i=$((i + 1))
    printf '%s\n' "line $i 第 $i 步" >>"$CONTROL/copy"
    printf '%s\n' "line $i 第 $i 步"
    case $i in *0) sleep 0.02 ;; esac
done
: >"$CONTROL/ended"
"#;

/// How a job is led to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Ends,
    Fails,
    Stopped,
    /// Before its agent can have reported.
    StoppedAtOnce,
    TimesOut,
    /// It would go on: something else ends it.
    GoesOn,
}

struct Scenario {
    name: &'static str,
    course: Course,
    /// A point that is died at before the one that is looked for.
    first: Option<&'static str>,
    /// Status and reason at the end.
    end: (&'static str, &'static str),
}

/// In the order in which points are looked for in them.
const SCENARIOS: [Scenario; 9] = [
    scenario("plain", Course::Ends, None, ("succeeded", "succeeded")),
    scenario("failing", Course::Fails, None, ("failed", "failed")),
    scenario("stopped", Course::Stopped, None, ("stopped", "stopped")),
    scenario("stopped-early", Course::StoppedAtOnce, None, ("stopped", "stopped")),
    scenario("too-long", Course::TimesOut, None, ("failed", "max_duration_exceeded")),
    scenario("lost", Course::GoesOn, Some("agent.gate.opened"), ("failed", "lost")),
    scenario("no-launch", Course::Ends, Some("driver.launch.before"), ("succeeded", "succeeded")),
    scenario("half-launch", Course::Ends, Some("local.launch.made"), ("succeeded", "succeeded")),
    scenario("lost-answer", Course::Ends, Some("driver.launch.after"), ("succeeded", "succeeded")),
];

const fn scenario(
    name: &'static str,
    course: Course,
    first: Option<&'static str>,
    end: (&'static str, &'static str),
) -> Scenario {
    Scenario { name, course, first, end }
}

/// One process that is killed: at a point, the nth time that it comes by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kill {
    point: String,
    nth: u32,
    /// An agent is started again at once, as a node does that was rebooted.
    again: bool,
}

impl Kill {
    fn is_of_agent(&self) -> bool {
        self.point.starts_with("agent.")
    }
}

/// The names in a binary.
fn points_of(binary: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(binary).expect("the binary can be read");
    let mark = MARK.as_bytes();
    let mut found = BTreeSet::new();
    let mut rest = &bytes[..];
    while let Some(at) = rest.windows(mark.len()).position(|part| part == mark) {
        rest = &rest[at + mark.len()..];
        let name = rest.split(|byte| *byte == b';').next().unwrap_or_default();
        let good = |byte: &u8| byte.is_ascii_lowercase() || matches!(byte, b'.' | b'_');
        if !name.is_empty() && name.len() < 60 && name.iter().all(good) {
            found.insert(String::from_utf8_lossy(name).into_owned());
        }
    }
    found
}

/// How often each point was come by, as the processes wrote it down.
fn trace(folder: &Path) -> BTreeMap<String, u32> {
    let text = std::fs::read_to_string(folder.join("trace")).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// Starts the agent of the newest node again once `mark` says that one was killed, until `over`.
fn start_agent_again(
    data_dir: &Path,
    marks: &Path,
    mark: &Path,
    over: &AtomicBool,
) -> Option<Running> {
    while !mark.is_file() {
        if over.load(Ordering::Relaxed) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let meter = meters(data_dir).pop().expect("an agent's node has a meter");
    let folder = meter.path.parent().expect("a node's folder");
    let node = folder.file_name().expect("its name").to_string_lossy().into_owned();
    let mut runner = Runner::new(&failpoint_bin(), folder, folder);
    runner.set("RUNWHERE_NODE_ID", node).set(FOLDER_VARIABLE, marks);
    let start = || runner.start(&["agent", "--node-dir", &folder.to_string_lossy()]);
    let mut agent = start();
    while !over.load(Ordering::Relaxed) {
        // One that comes before the killed one is quite gone says that another runs.
        if agent.code() == Some(1) {
            agent = start();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(agent)
}

/// Runs one job from a first start to a confirmed release while processes die, and checks that nothing was lost,
/// repeated or left behind. `None` where the point was not come by this time.
fn run(scenario: &Scenario, kill: Option<&Kill>) -> Option<BTreeMap<String, u32>> {
    let marks = tempfile::tempdir().expect("a temporary folder");
    let armed: Vec<String> = scenario
        .first
        .map(str::to_owned)
        .into_iter()
        .chain(kill.map(|kill| format!("{}:{}", kill.point, kill.nth)))
        .collect();
    let mut survivor = Survivor::start(ServerOptions {
        program: Some(failpoint_bin()),
        env: vec![
            (ARMED_VARIABLE.to_owned(), armed.join(",").into()),
            (FOLDER_VARIABLE.to_owned(), marks.path().into()),
        ],
        ..ServerOptions::default()
    });
    let program = match scenario.course {
        Course::Ends => TALKING_PROGRAM.to_owned(),
        Course::Fails => format!("{TALKING_PROGRAM}exit 3\n"),
        Course::Stopped | Course::StoppedAtOnce | Course::TimesOut | Course::GoesOn => {
            STEADY_PROGRAM.to_owned()
        }
    };
    let project = Project::new(scenario.name, &program);
    let control = project.control();
    let mut yaml = project.yaml();
    if scenario.course == Course::TimesOut {
        yaml = yaml.replace("job:\n", "job:\n  maxDuration: 1s\n");
    }
    let files = [("train.sh", program.as_bytes()), ("train.yaml", yaml.as_bytes())];
    survivor.sync(project.name(), &yaml, &files);
    let id = survivor.submit(&yaml, "a-key");
    if scenario.course == Course::Stopped {
        survivor.wait_for("the program starts", || control.read("started"));
    }
    let early = scenario.course == Course::StoppedAtOnce;
    if early || scenario.course == Course::Stopped {
        survivor.send("POST", &format!("/api/v1/jobs/{id}/stop"), &[], None).expect(200);
    }
    let mark = kill.map(|kill| marks.path().join(format!("{}:{}", kill.point, kill.nth)));
    let again = kill.is_some_and(|kill| kill.again);
    let is_over = AtomicBool::new(false);
    let (over, _agent) = std::thread::scope(|scope| {
        let data_dir = survivor.server().data_dir().to_owned();
        let agent = mark.as_ref().filter(|_| again).map(|mark| {
            let (marks, is_over) = (marks.path(), &is_over);
            scope.spawn(move || start_agent_again(&data_dir, marks, mark, is_over))
        });
        // Also where waiting fails, or the thread would wait for ever.
        let over = catch_unwind(AssertUnwindSafe(|| survivor.wait_over(&id)));
        is_over.store(true, Ordering::Relaxed);
        let agent = agent.and_then(|thread| thread.join().expect("the agent is started"));
        (over.unwrap_or_else(|panic| resume_unwind(panic)), agent)
    });

    // The same job, once, and it ended as it should, or as a job whose node died under it.
    let found = (over["status"].as_str().unwrap_or(""), over["end_reason"].as_str().unwrap_or(""));
    let agent_died = kill.is_some_and(Kill::is_of_agent);
    let lost = found == ("failed", "lost") || (!again && found == ("failed", "node_failed"));
    assert!(found == scenario.end || (agent_died && lost), "{over}");
    let listed = survivor.send("GET", "/api/v1/jobs", &[], None).expect(200);
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "{listed}");
    let starts = control.read("starts").unwrap_or_default();
    assert!(
        starts == "." || ((lost || early) && starts.is_empty()),
        "user code was started: {starts:?}"
    );
    if lost {
        assert!(over["end_message"].as_str().is_some_and(|why| !why.is_empty()), "{over}");
    }

    // The log is the program's own copy; where the node died, its beginning.
    let copy = control.read("copy").unwrap_or_default();
    let stored: String =
        survivor.api().program_lines(&id).into_iter().map(|line| line + "\n").collect();
    let outputs = &over["outputs"];
    // The program may have ended well before the node died, which then took the rest with it and says so.
    // An agent that comes back says that what its predecessor had not read is missing.
    let told = again && survivor.api().logs(&id).iter().any(|line| line.contains("中断过"));
    if lost || told || (agent_died && !again && outputs["state"] == "failed") {
        assert!(copy.starts_with(&stored), "stored {stored:?}, printed {copy:?}");
        let said = outputs["reason"].as_str().is_some_and(|why| !why.is_empty());
        assert!(lost || told || said, "{over}");
    } else {
        assert_eq!(stored, copy, "the stored log is the program's copy: {over}");
        if found.1 == "succeeded" {
            assert_eq!((&outputs["state"], &outputs["files"]), (&json!("uploaded"), &json!(2)));
        }
    }

    // Every node was billed for exactly its own time, and there were never two at once.
    let meters = meters(survivor.server().data_dir());
    let mut metered = BTreeMap::new();
    for meter in &meters {
        let node = meter.path.parent().and_then(Path::file_name).expect("a node's folder");
        assert_eq!(meter.starts, 1, "{meter:?}");
        let micros = meter.microseconds().unwrap_or_else(|| panic!("not stopped: {meter:?}"));
        metered.insert(node.to_string_lossy().into_owned(), micros);
    }
    assert!(early || !metered.is_empty(), "no node was made");
    assert_eq!(billed_microseconds(survivor.api(), &id), metered, "billed and metered");
    let one_after_the_other =
        |pair: &[LocalMeter]| pair[0].stop.is_some_and(|stop| Some(stop) <= pair[1].start);
    assert!(meters.windows(2).all(one_after_the_other), "two nodes at once: {meters:?}");

    if scenario.course == Course::Stopped {
        survivor.send("DELETE", &format!("/api/v1/jobs/{id}"), &[], None).expect(200);
        survivor.send("GET", &format!("/api/v1/jobs/{id}"), &[], None).expect(404);
    }
    // The last points lie behind everything that a user sees.
    if let Some(mark) = mark {
        let end = Instant::now() + Duration::from_secs(5);
        while !mark.is_file() {
            if Instant::now() > end {
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    eventually("nothing runs on", || {
        survivor.keep_up();
        survivor.server().leftovers().is_empty().then_some(())
    });
    Some(trace(marks.path()))
}

/// Does `work` for all of `items`, some at once, and gives the results in order. A panic is a result.
fn spread<I: Sync, T: Send>(
    items: &[I],
    work: impl Fn(&I) -> T + Sync,
) -> Vec<std::thread::Result<T>> {
    // The processes wait most of their time.
    let threads = std::thread::available_parallelism().map_or(2, usize::from) * 5;
    let next = Mutex::new(0);
    let results: Mutex<Vec<(usize, std::thread::Result<T>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = {
                        let mut next = next.lock().expect("no thread panics with it");
                        *next += 1;
                        *next - 1
                    };
                    let Some(item) = items.get(index) else { return };
                    let result = catch_unwind(AssertUnwindSafe(|| work(item)));
                    results.lock().expect("no thread panics with it").push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("all threads have ended");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[test]
fn kill_points_lose_nothing() {
    let begun = Instant::now();
    let points = points_of(&failpoint_bin());
    assert!(points.len() >= 40, "only {} points: {points:?}", points.len());
    assert_eq!(points.iter().filter(|point| point.starts_with("state.")).count(), 10 + 7);

    // Which scenario comes by which point?
    let traces: Vec<BTreeMap<String, u32>> = spread(&SCENARIOS, |scenario| run(scenario, None))
        .into_iter()
        .zip(&SCENARIOS)
        .map(|(trace, scenario)| {
            let trace = trace.unwrap_or_else(|_| panic!("{} fails on its own", scenario.name));
            trace.expect("nothing was looked for")
        })
        .collect();
    let mut kills = Vec::new();
    let mut nowhere = Vec::new();
    for point in &points {
        let found: Vec<(&Scenario, u32)> = SCENARIOS
            .iter()
            .zip(&traces)
            .filter(|(scenario, _)| scenario.first != Some(point))
            .filter_map(|(scenario, trace)| Some((scenario, *trace.get(point)?)))
            .collect();
        let Some((scenario, count)) = found.first().copied() else {
            nowhere.push(point);
            continue;
        };
        let scenarios: Vec<&Scenario> = found.iter().map(|(scenario, _)| *scenario).collect();
        // Where nothing else dies, one process of each kind comes by them all: the first time and the last.
        let times: BTreeSet<u32> = match scenario.first {
            None => [1, count].into(),
            Some(_) => [1].into(),
        };
        for nth in times {
            let kill = Kill { point: point.clone(), nth, again: false };
            let scenarios = if nth == 1 { scenarios.clone() } else { vec![scenario] };
            if kill.is_of_agent() {
                kills.push((scenarios.clone(), Kill { again: true, ..kill.clone() }));
            }
            if nth == 1 || !kill.is_of_agent() {
                kills.push((scenarios.clone(), kill));
            }
        }
    }
    assert!(nowhere.is_empty(), "no scenario comes by {nowhere:?}");
    let traced = begun.elapsed();

    let results = spread(&kills, |(scenarios, kill)| {
        let since = Instant::now();
        // Some points depend on who is faster: then another run, or another scenario, comes by.
        let tries = scenarios.iter().cycle().take(scenarios.len().max(3));
        let reached = tries.into_iter().any(|scenario| run(scenario, Some(kill)).is_some());
        (reached, since.elapsed())
    });
    let mut failed = Vec::new();
    let mut missed = Vec::new();
    let mut longest = (Duration::ZERO, String::new());
    for ((scenarios, kill), result) in kills.iter().zip(results) {
        let again = if kill.again { ", started again" } else { "" };
        let name = format!("{}:{} ({}{again})", kill.point, kill.nth, scenarios[0].name);
        match result {
            Err(_) => failed.push(name),
            Ok((false, _)) if kill.nth == 1 => failed.push(format!("{name}, not come by")),
            Ok((false, _)) => missed.push(name),
            Ok((true, time)) => longest = longest.max((time, name)),
        }
    }
    eprintln!(
        "{} points, {} kills, {} s (scenarios alone {} s); longest {longest:?}; not come by a last time: {missed:?}",
        points.len(),
        kills.len(),
        begun.elapsed().as_secs(),
        traced.as_secs(),
    );
    assert!(failed.is_empty(), "{} of {} kills: {failed:#?}", failed.len(), kills.len());
}
