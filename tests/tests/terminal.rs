//! `run` on a terminal: interrupted once, twice, at any moment, and its window closed.

use runwhere_tests::{
    LocalMeter, OurClient, Processes, Project, STEADY_PROGRAM, Server, ServerOptions, Terminal,
    eventually, meters,
};
use std::path::PathBuf;
use std::time::Duration;

const CTRL_C: &[u8] = b"\x03";
const LIMIT: Duration = Duration::from_secs(60);

/// A person with a project in front of a terminal, without a server.
struct Person {
    project: Project,
    client: OurClient,
}

impl Person {
    fn with(name: &str, program: &str) -> Self {
        let project = Project::new(name, program);
        let client = OurClient::new(project.folder());
        Person { project, client }
    }

    fn run(&self) -> Terminal {
        Terminal::start(&self.client.runner, &["run", "-f", "train.yaml", "--try-locally"])
    }

    /// The data folder of the server in the command.
    fn data_dir(&self) -> PathBuf {
        self.client.home().join(".runwhere/server")
    }

    fn meters(&self) -> Vec<LocalMeter> {
        meters(&self.data_dir())
    }

    /// Whatever it started is gone, and what it rented is not billed any more.
    fn nothing_left(&self) {
        for folder in [self.client.home(), self.project.control().path()] {
            eventually("nothing runs on", || Processes::of(folder).is_empty().then_some(()));
        }
        let meters = self.meters();
        assert!(meters.iter().all(|meter| meter.stop.is_some()), "still billed: {meters:?}");
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        Processes::end_all(self.client.home());
        Processes::end_all(self.project.control().path());
    }
}

#[test]
fn terminal_one_interrupt_stops_the_task() {
    let person = Person::with("interrupted", STEADY_PROGRAM);
    let terminal = person.run();
    person.project.control().wait_started();
    terminal.press(CTRL_C);
    let ran = terminal.finish(LIMIT).expect_code(130);
    assert!(ran.screen().contains("cleanup_confirmed"), "{ran}");
    assert_eq!(person.meters().len(), 1);
    person.nothing_left();
}

#[test]
fn terminal_two_interrupts_name_what_may_live_on() {
    // The program does not end at once, so that the second interrupt finds the release under way.
    let person = Person::with("impatient", &format!("trap '' TERM\n{STEADY_PROGRAM}"));
    let terminal = person.run();
    person.project.control().wait_started();
    terminal.press(CTRL_C);
    terminal.wait_for("再按一次");
    terminal.press(CTRL_C);
    let ran = terminal.finish(Duration::from_secs(10)).expect_code(130);
    let meters = person.meters();
    let node = meters[0].path.parent().and_then(|folder| folder.file_name()).expect("a node");
    let node = node.to_string_lossy();
    let screen = ran.screen();
    assert!(screen.contains(&*node) && screen.contains("36.44"), "{node}: {screen}");
    assert!(meters[0].stop.is_none(), "it said that {node} may live, and it does: {meters:?}");
    // What it advises helps: a server on the same folder ends what was left.
    let server = Server::start_with(ServerOptions {
        data_dir: Some(person.data_dir()),
        ..ServerOptions::default()
    });
    eventually("the node is released", || {
        person.meters().iter().all(|meter| meter.stop.is_some()).then_some(())
    });
    drop(server);
    person.nothing_left();
}

#[test]
fn terminal_closed_while_the_task_runs() {
    let person = Person::with("closed", STEADY_PROGRAM);
    let mut terminal = person.run();
    person.project.control().wait_started();
    terminal.wait_for("Epoch 1/10");
    terminal.close();
    let ran = terminal.finish(LIMIT);
    person.nothing_left();
    assert_eq!(person.meters().len(), 1);
    ran.expect_code(130);
}

#[test]
fn terminal_closed_after_an_interrupt() {
    // A closed window is no second wish: the release is waited for.
    let person = Person::with("closed-late", &format!("trap '' TERM\n{STEADY_PROGRAM}"));
    let mut terminal = person.run();
    person.project.control().wait_started();
    terminal.press(CTRL_C);
    terminal.wait_for("再按一次");
    terminal.close();
    terminal.finish(LIMIT).expect_code(130);
    person.nothing_left();
}

#[test]
fn terminal_interrupts_before_the_task_runs() {
    for text in ["未配置服务器", "Uploading", "job-"] {
        let person = Person::with("early", STEADY_PROGRAM);
        let terminal = person.run();
        terminal.wait_for(text);
        terminal.press(CTRL_C);
        let ran = terminal.finish(LIMIT).expect_code(130);
        assert_eq!(person.project.control().read("ended"), None, "{ran}");
        person.nothing_left();
    }
}
