//! kill -9 of the server and of the agent, at any moment.

use runwhere_tests::{
    Api, Control, Phase, Project, STEADY_PROGRAM, Server, billed_microseconds, eventually, meters,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Prints 250 numbered lines within a few seconds, some long, some in bursts, and keeps its own copy.
const TALKING_PROGRAM: &str = r#"
printf . >>"$CONTROL/starts"
: >"$CONTROL/started"
long=$(printf '%02000d' 0)
i=0
while [ $i -lt 250 ]; do
    i=$((i + 1))
    case $i in
        *7) line="$i $long" ;;
        *) line="$i 第 $i 步" ;;
    esac
    printf '%s\n' "$line" | tee -a "$CONTROL/copy"
    case $i in *[05]) sleep 0.05 ;; esac
done
: >"$CONTROL/ended"
"#;

/// A small generator: where to strike needs no quality, but the seed must be shown.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed = RandomState::new().build_hasher().finish() | 1;
        eprintln!("seed {seed}");
        Dice(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn synced(api: &Api, project: &Project, program: &str) -> String {
    let yaml = project.yaml();
    api.sync(
        project.name(),
        &yaml,
        &[("train.sh", program.as_bytes()), ("train.yaml", yaml.as_bytes())],
    );
    yaml
}

/// A submit that is safe to repeat: until an answer comes, over as many restarts as it takes.
fn submit_with_key(api: &Api, yaml: &str, offer: &str, key: &str) -> Option<String> {
    let body = json!({"yaml_content": yaml, "offer_key": offer}).to_string().into_bytes();
    let headers = [("Content-Type", "application/json"), ("Idempotency-Key", key)];
    let reply = api.try_send("POST", "/api/v1/jobs/submit", &headers, Some(body))?;
    Some(reply.expect(200)["job_id"].as_str().expect("an id").to_owned())
}

/// The job ended well; its stored log is the program's own copy; it ran once; it was billed for exactly its node's time.
fn intact(server: &Server, api: &Api, id: &str, control: &Control) {
    let end = api.wait_end(id);
    assert_eq!(end["status"], "succeeded", "{end}");
    assert_eq!(control.read("starts").as_deref(), Some("."), "user code ran once");
    let released = api.wait_released(id);
    let copy = control.read("copy").expect("the program's own copy");
    let stored = api.program_lines(id).join("\n") + "\n";
    assert!(
        stored == copy,
        "the log of {id} differs from the program's copy:\n{}",
        first_difference(&stored, &copy)
    );

    // A node that was lost before user code started is billed too, for exactly its own time.
    let billed_nodes = billed_microseconds(api, id);
    let last = released["node_id"].as_str().expect("a node");
    assert!(billed_nodes.contains_key(last), "{last} is not among {billed_nodes:?}");
    let meters = meters(server.data_dir());
    let mut metered = 0;
    for (node, billed) in &billed_nodes {
        let meter = meters
            .iter()
            .find(|meter| meter.path.parent().is_some_and(|folder| folder.ends_with(node)))
            .unwrap_or_else(|| panic!("no meter for {node} among {meters:?}"));
        assert_eq!(meter.starts, 1, "{meter:?}");
        let micros = meter.microseconds().unwrap_or_else(|| panic!("not stopped: {meter:?}"));
        assert_eq!(*billed, micros, "the ledger's segments of {node} add up to its meter");
        metered += micros;
    }
    let billed = released["billed_seconds"].as_i64().expect("whole seconds");
    let nodes = i64::try_from(billed_nodes.len()).expect("few");
    assert!(
        (billed * 1_000_000 - metered).abs() < nodes * 1_000_000,
        "billed {billed} s, metered {metered} us on {nodes} nodes"
    );
}

fn first_difference(found: &str, wanted: &str) -> String {
    let cut = |line: Option<&str>| line.map(|line| line.chars().take(80).collect::<String>());
    let pairs = (0..).map(|number| (number, found.lines().nth(number), wanted.lines().nth(number)));
    for (number, found, wanted) in pairs {
        if found != wanted {
            return format!(
                "line {}: stored {:?}, printed {:?}",
                number + 1,
                cut(found),
                cut(wanted)
            );
        }
        if found.is_none() {
            break;
        }
    }
    "only in the ends of lines".to_owned()
}

#[test]
fn crash_of_the_server_at_thirty_random_instants() {
    let mut dice = Dice::new();
    let mut server = Server::start();
    let api = server.api();
    let offer = api.offer();
    let mut jobs: Vec<(Project, String)> = Vec::new();
    for strike in 0..30 {
        // A new job on every second strike, its submit racing the kill.
        let pending = (strike % 2 == 0).then(|| {
            let project = Project::new(&format!("crash-{strike}"), TALKING_PROGRAM);
            let yaml = synced(&api, &project, TALKING_PROGRAM);
            (project, yaml, format!("key-{strike}"))
        });
        let delay = Duration::from_millis(dice.below(500));
        let early = std::thread::scope(|scope| {
            let submit = pending
                .as_ref()
                .map(|(_, yaml, key)| scope.spawn(|| submit_with_key(&api, yaml, &offer, key)));
            std::thread::sleep(delay);
            server.kill();
            submit.and_then(|thread| thread.join().expect("no thread panics"))
        });
        server.restart();
        if let Some((project, yaml, key)) = pending {
            let id = submit_with_key(&api, &yaml, &offer, &key).expect("the server is up");
            if let Some(early) = early {
                assert_eq!(early, id, "an answered submit was forgotten");
            }
            jobs.push((project, id));
        }
    }
    for (project, id) in &jobs {
        intact(&server, &api, id, project.control());
    }
    let listed = api.get("/api/v1/jobs").expect(200)["data"].as_array().expect("jobs").len();
    assert_eq!(listed, jobs.len());
    assert_eq!(meters(server.data_dir()).len(), jobs.len(), "one node for each job");
    eventually("nothing runs on", || server.leftovers().is_empty().then_some(()));
}

#[test]
fn crash_of_the_server_in_every_phase() {
    let mut server = Server::start();
    let api = server.api();
    let project = Project::new("phases", STEADY_PROGRAM);
    let yaml = synced(&api, &project, STEADY_PROGRAM);
    for phase in Phase::ALL {
        project.control().clear();
        let earlier = meters(server.data_dir()).len();
        let id = api.submit(&yaml);
        phase.wait(&server, &api, &id, project.control(), earlier);
        server.restart();
        project.control().wait_started();
        project.control().go(0);
        intact(&server, &api, &id, project.control());
    }
    eventually("nothing runs on", || server.leftovers().is_empty().then_some(()));
}

#[test]
fn crash_of_the_server_while_it_stops_a_task() {
    let mut server = Server::start();
    let api = server.api();
    let project = Project::new("stopping", STEADY_PROGRAM);
    let id = api.submit(&synced(&api, &project, STEADY_PROGRAM));
    project.control().wait_started();
    api.send("POST", &format!("/api/v1/jobs/{id}/stop"), &[], None).expect(200);
    server.restart();
    assert_eq!(api.wait_end(&id)["status"], "stopped");
    api.wait_released(&id);
    eventually("nothing runs on", || server.leftovers().is_empty().then_some(()));
}

#[test]
fn crash_of_the_agent_loses_the_task_and_never_repeats_it() {
    let server = Server::start();
    let api = server.api();
    let project = Project::new("loses-its-agent", STEADY_PROGRAM);
    let id = api.submit(&synced(&api, &project, STEADY_PROGRAM));
    project.control().wait_started();
    eventually("the first line is stored", || (!api.program_lines(&id).is_empty()).then_some(()));

    let processes = server.leftovers();
    let agents: Vec<i32> = processes
        .0
        .iter()
        .copied()
        .filter(|id| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == b"agent")
        })
        .collect();
    assert_eq!(agents.len(), 1, "{:?}", processes.describe());
    kill_process(Pid::from_raw(agents[0]).expect("a process id"), Signal::KILL).expect("it runs");

    let end = api.wait_end(&id);
    assert_eq!((&end["status"], &end["end_reason"]), (&json!("failed"), &json!("lost")), "{end}");
    api.wait_released(&id);
    assert_eq!(api.program_lines(&id), ["Epoch 1/10, step 100, loss=2.341"]);
    assert_eq!(control_starts(&project), 1, "user code is never run again");
    assert!(meters(server.data_dir()).iter().all(|meter| meter.stop.is_some()));
    eventually("nothing runs on", || server.leftovers().is_empty().then_some(()));
    assert_eq!(api.job(&id)["status"], "failed");
    assert_eq!(control_starts(&project), 1);
}

fn control_starts(project: &Project) -> usize {
    project.control().read("starts").unwrap_or_default().len()
}
