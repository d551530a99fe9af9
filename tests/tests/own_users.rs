//! Programs of a server that is root run as users of their own and read nothing of it. Needs root.

use runwhere_tests::{Api, Processes, Project, Server, ServerOptions, eventually};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Looks around, leaves a process that only its user tells apart, and waits until the test lets it go.
const PROGRAM: &str = r#"
set -u
id -u >"$CONTROL/uid"
id -G >"$CONTROL/groups"
pwd -P >"$CONTROL/folder"
read_one() {
    if [ -d "$1" ]; then ls "$1" >/dev/null 2>&1; else cat "$1" >/dev/null 2>&1; fi && echo "$1" >>"$CONTROL/readable"
}
: >"$CONTROL/readable"
while IFS= read -r path; do read_one "$path"; done <"$CONTROL/paths"
for process in /proc/[0-9]*; do
    owner=$(stat -c %u "$process" 2>/dev/null) && [ "$owner" = 0 ] && read_one "$process/environ"
done
env -i PATH="$PATH" setsid sh -c 'cd /; echo $$ >"$0/hidden"; exec sleep 1000' "$CONTROL" </dev/null >/dev/null 2>&1 &
mkdir -p checkpoints && echo new >checkpoints/new.pt && echo more >>train.yaml
echo out >/dev/stdout
stat -c '%u %n' train.sh "$HOME" "$TMPDIR" >"$CONTROL/owners"
python3 -c 'print("python runs")' || exit 9
: >"$CONTROL/started"
while [ ! -e "$CONTROL/go" ]; do sleep 0.05; done
exit 0
"#;

fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped {test}: needs root");
    }
    root
}

fn start(api: &Api, project: &Project, paths: &[PathBuf]) -> String {
    let lines: String = paths.iter().map(|path| format!("{}\n", path.display())).collect();
    fs::write(project.control().file("paths"), lines).unwrap();
    let yaml = project.yaml();
    let files: [(&str, &[u8]); 2] =
        [("train.sh", PROGRAM.as_bytes()), ("train.yaml", yaml.as_bytes())];
    api.sync(project.name(), &yaml, &files);
    let id = api.submit(&yaml);
    project.control().wait_started();
    id
}

fn all_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        found.push(entry.path());
        if entry.file_type().unwrap().is_dir() {
            all_below(&entry.path(), found);
        }
    }
}

fn said(project: &Project, name: &str) -> String {
    project.control().read(name).unwrap_or_default().trim().to_owned()
}

#[test]
fn programs_of_root_are_users_of_their_own() {
    if !is_root("programs_of_root_are_users_of_their_own") {
        return;
    }
    let server = Server::start();
    let api = server.api();
    let deployment = fs::read_to_string(server.data_dir().join("deployment")).unwrap();
    let work_root = PathBuf::from(format!("/var/tmp/runwhere-{}", deployment.trim()));
    let projects = [Project::new("first", PROGRAM), Project::new("second", PROGRAM)];
    let first = start(&api, &projects[0], &[]);
    // The second one tries everything that there is of the server, of its own node and of the first one.
    let mut paths = vec![server.data_dir().to_owned(), work_root.clone()];
    all_below(server.data_dir(), &mut paths);
    all_below(&work_root, &mut paths);
    let names: BTreeSet<_> =
        paths.iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect();
    for name in
        ["server.key", "first-token", "broker.db", "bootstrap.json", "session.key", "train.sh"]
    {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    let second = start(&api, &projects[1], &paths);

    let mut users = BTreeSet::new();
    for project in &projects {
        let uid: u32 = said(project, "uid").parse().unwrap();
        assert!((61_184..=65_519).contains(&uid), "{uid}");
        assert_eq!(said(project, "groups"), uid.to_string());
        assert_eq!(said(project, "readable"), "");
        assert!(said(project, "folder").starts_with(work_root.to_str().unwrap()));
        for line in said(project, "owners").lines() {
            assert!(line.starts_with(&format!("{uid} ")), "{line}");
        }
        users.insert(uid);
    }
    assert_eq!(users.len(), 2);
    // Its own node's secrets came to be after the list was made.
    let folder = PathBuf::from(said(&projects[1], "folder"));
    let node = folder.parent().unwrap().file_name().unwrap();
    let own = server.data_dir().join("local").join(node).join("session.key");
    let data = fs::metadata(&own).unwrap();
    assert_eq!((data.uid(), data.mode() & 0o777), (0, 0o600));
    assert_eq!(fs::metadata(server.data_dir().join("local")).unwrap().mode() & 0o777, 0o700);

    for (project, id) in projects.iter().zip([&first, &second]) {
        let hidden: i32 = said(project, "hidden").parse().unwrap();
        assert!(Path::new("/proc").join(hidden.to_string()).exists());
        project.control().go(0);
        assert_eq!(api.wait_end(id)["status"], "succeeded");
        api.wait_released(id);
        let place = Path::new("/proc").join(hidden.to_string());
        eventually("the hidden process is gone", || (!place.exists()).then_some(()));
        let left: Vec<u32> = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| Some(entry.metadata().ok()?.uid()))
            .filter(|uid| uid.to_string() == said(project, "uid"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        assert!(!PathBuf::from(said(project, "folder")).exists());
        let lines = api.get(&format!("/api/v1/jobs/{id}/logs")).expect(200).to_string();
        assert!(lines.contains("python runs") && lines.contains("\"out\""), "{lines}");
    }
    eventually("the work root is gone", || (!work_root.exists()).then_some(()));
}

/// Does what keeps an end from being whole: goes on as its own child faster than anybody looks, leaves files where all
/// users write, and makes a folder of a file, a file of a folder, and a folder in a folder for ever.
const HOSTILE: &str = r#"
set -u
[ -z "${RUNW_RESUME_FROM_STEP:-}" ] || { cat a/b d; exit 0; }
"$CONTROL/chain" "$CONTROL/held" 60
for place in /tmp /var/tmp /dev/shm; do mkdir "$place/runwhere-test-left.$(id -u)" && echo "$place/runwhere-test-left.$(id -u)"; done >"$CONTROL/left"
rm -r a d && mkdir a && printf 'folder ' >a/b && printf file >d
mkdir deep && cd -P deep || exit 8
for level in $(seq 600); do mkdir d && cd -P d || exit 9; done 2>/dev/null
exit 0
"#;

#[test]
fn nothing_of_a_hostile_program_is_left_and_its_outputs_come_back() {
    if !is_root("nothing_of_a_hostile_program_is_left_and_its_outputs_come_back") {
        return;
    }
    let server = Server::start();
    let api = server.api();
    let project = Project::new("hostile", HOSTILE);
    let chain = project.control().file("chain");
    let source = chain.with_extension("c");
    fs::write(&source, include_str!("../../broker/agent/tests/agent/chain.c")).unwrap();
    let made = Command::new("cc").arg("-o").arg(&chain).arg(&source).status().unwrap();
    assert!(made.success());
    let yaml = project.yaml();
    let files: [(&str, &[u8]); 4] = [
        ("train.sh", HOSTILE.as_bytes()),
        ("train.yaml", yaml.as_bytes()),
        ("a", b"a file"),
        ("d/x", b"in a folder"),
    ];
    api.sync(project.name(), &yaml, &files);
    let id = api.submit(&yaml);
    assert_eq!(api.wait_end(&id)["status"], "succeeded");
    api.wait_released(&id);
    let held = fs::File::open(project.control().file("held")).unwrap();
    held.try_lock().expect("no process that has inherited the lock is left");
    let left = said(&project, "left");
    assert_eq!(left.lines().count(), 3, "{left}");
    for place in left.lines() {
        eventually("what it left is gone", || (!Path::new(place).exists()).then_some(()));
    }

    let body = serde_json::json!({ "from_step": 1 });
    let resumed = api.post(&format!("/api/v1/jobs/{id}/resume"), &body).expect(200);
    let resumed = resumed["new_job_id"].as_str().unwrap().to_owned();
    assert_eq!(api.wait_end(&resumed)["status"], "succeeded");
    let lines = api.get(&format!("/api/v1/jobs/{resumed}/logs")).expect(200).to_string();
    assert!(lines.contains("folder file"), "{lines}");
}

#[test]
fn a_killed_server_leaves_no_work_folder() {
    if !is_root("a_killed_server_leaves_no_work_folder") {
        return;
    }
    let mut server = Server::start();
    let project = Project::new("crash", PROGRAM);
    let id = start(&server.api(), &project, &[]);
    let folder = PathBuf::from(said(&project, "folder"));
    server.kill();
    assert!(folder.exists());
    server.restart();
    project.control().go(0);
    assert_eq!(server.api().wait_end(&id)["status"], "succeeded");
    server.api().wait_released(&id);
    assert!(!folder.exists());
    assert!(Processes::of(&folder).is_empty());
}

#[test]
fn root_says_when_programs_have_its_rights() {
    if !is_root("root_says_when_programs_have_its_rights") {
        return;
    }
    let config = Some("[local]\nrun_as = \"server\"\n".to_owned());
    let server = Server::start_with(ServerOptions { config, ..ServerOptions::default() });
    assert_eq!(server.stderr().matches("run_as").count(), 1, "{}", server.stderr());
    let project = Project::new("trusted", PROGRAM);
    let id = start(&server.api(), &project, &[]);
    assert_eq!(said(&project, "uid"), "0");
    project.control().go(0);
    assert_eq!(server.api().wait_end(&id)["status"], "succeeded");
}
