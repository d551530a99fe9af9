//! The list of jobs, with few and with many ended ones.

use crate::figure::{Report, Row, Target};
use crate::shared::{command, fresh_folder, runs, server, submitted, timed};
use runwhere_tests::{Api, OurClient, Project, Server};
use rusqlite::Connection;
use std::path::Path;
use std::time::Instant;

const FEW: u64 = 10;
/// What the list holds without `limit`.
const FULL_ANSWER: u64 = 500;
const MANY: u64 = 10_000;
/// The name of the one job that really ran; the others are made after it.
const NAME: &str = "bench-template";

pub(crate) fn measure(report: &mut Report) {
    let folder = fresh_folder("jobs-");
    let mut server = server(folder.path());
    let client = OurClient::logged_in(folder.path(), &server);
    let project = Project::new(NAME, "exit 0\n");
    let job = {
        let api = server.api();
        let job = submitted(&api, &project, "exit 0\n");
        let ended = api.wait_end(&job);
        assert_eq!(ended["status"], "succeeded", "{ended}");
        api.wait_released(&job);
        job
    };
    let mut have = 1;
    let mut at = |count: u64, server: &mut Server| {
        multiply(server, &job, have, count);
        have = count;
        Lists::measure(count, server, &client)
    };
    let few = at(FEW, &mut server);
    let full = at(FULL_ANSWER, &mut server);
    let many = at(MANY, &mut server);
    for lists in [&few, &full, &many] {
        for row in [&lists.page, &lists.whole, &lists.command] {
            row.print();
        }
    }
    many.last_page.print();
    let ratio = |many: &Row, few: &Row| many.median() / few.median();
    report.add(
        "job list: page of 10, 10,000 / 10 jobs",
        ratio(&many.page, &few.page),
        "x",
        Target::AtMost(3.0),
    );
    report.add(
        "job list: last page of 10, 10,000 / 10 jobs",
        ratio(&many.last_page, &few.page),
        "x",
        Target::AtMost(3.0),
    );
    report.add(
        "job list: all 500 shown, 10,000 / 500 jobs",
        ratio(&many.whole, &full.whole),
        "x",
        Target::AtMost(3.0),
    );
    report.add(
        "`get jobs`, 10,000 / 500 jobs",
        ratio(&many.command, &full.command),
        "x",
        Target::AtMost(3.0),
    );
    report.add(
        "`get jobs`, 10,000 (500 shown) / 10 jobs",
        ratio(&many.command, &few.command),
        "x",
        Target::Recorded,
    );
    report.add("list of 500 jobs", many.whole.median(), "ms", Target::Recorded);
}

struct Lists {
    page: Row,
    last_page: Row,
    whole: Row,
    command: Row,
}

impl Lists {
    fn measure(count: u64, server: &Server, client: &OurClient) -> Self {
        let api = server.api();
        let mut lists = Lists {
            page: Row::new(&format!("{count} jobs: limit=10")),
            last_page: Row::new(&format!("{count} jobs: limit=10, the last ones")),
            whole: Row::new(&format!("{count} jobs: without limit")),
            command: Row::new(&format!("{count} jobs: `get jobs`")),
        };
        let last = format!("/api/v1/jobs?limit=10&cursor={}", id(11.min(count)));
        let shown = count.min(FULL_ANSWER);
        for (row, path, wanted, times) in [
            (&mut lists.page, "/api/v1/jobs?limit=10", 10, 200),
            (&mut lists.last_page, last.as_str(), 10.min(count - 1), 200),
            (&mut lists.whole, "/api/v1/jobs", shown, 20),
        ] {
            let wanted = usize::try_from(wanted).expect("small");
            listed(&api, path, wanted);
            for _ in 0..times {
                let start = Instant::now();
                let body = api.get(path);
                row.add(start.elapsed());
                drop(body);
            }
        }
        for _ in 0..runs(10) {
            lists.command.add(timed(command(&client.runner, &["get", "jobs"])).0);
        }
        lists
    }
}

fn listed(api: &Api, path: &str, wanted: usize) {
    let body = api.get(path).expect(200);
    let found = body["data"].as_array().expect("jobs").len();
    assert_eq!(found, wanted, "jobs of {path}");
}

/// The id of the job of this number.
fn id(number: u64) -> String {
    format!("job-{number:08x}")
}

/// Copies the job in the database until there are `count`, each with its trial, lease, events and money.
fn multiply(server: &mut Server, job: &str, have: u64, count: u64) {
    server.stop();
    copy(&server.data_dir().join("broker.db"), job, have, count)
        .unwrap_or_else(|error| panic!("cannot copy jobs: {error}"));
    server.restart();
}

fn copy(database: &Path, job: &str, have: u64, count: u64) -> rusqlite::Result<()> {
    let mut connection = Connection::open(database)?;
    let lease: String = connection.query_row(
        "SELECT lease_id FROM trials WHERE id LIKE ?1 || '.%'",
        [job],
        |row| row.get(0),
    )?;
    let transaction = connection.transaction()?;
    for (table, filter) in [
        ("jobs", "id = ?1"),
        ("trials", "id LIKE ?1 || '.%'"),
        ("leases", "id = ?2"),
        ("segments", "job_id = ?1"),
        ("entries", "instr(doc, ?2) > 0"),
        ("events", "job_id = ?1"),
    ] {
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        let mut statement = transaction
            .prepare("SELECT name, type FROM pragma_table_info(?1) WHERE name <> 'pos'")?;
        let mut rows = statement.query([table])?;
        while let Some(row) = rows.next()? {
            let (name, kind): (String, String) = (row.get(0)?, row.get(1)?);
            values.push(match (name.as_str(), kind.as_str()) {
                ("idempotency_key", _) => "NULL".to_owned(),
                ("job_pos", _) => {
                    "(SELECT pos FROM jobs WHERE id = printf('job-%08x', i))".to_owned()
                }
                (name, "TEXT") => format!(
                    "replace(replace(replace(t.{name}, ?1, printf('job-%08x', i)), \
                     ?2, printf('lease-%016x', i)), '{NAME}', printf('bench-%08d', i))"
                ),
                (name, _) => format!("t.{name}"),
            });
            columns.push(name);
        }
        let sql = format!(
            "WITH RECURSIVE n(i) AS (SELECT ?3 + 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?4)
             INSERT INTO {table} ({}) SELECT {} FROM n CROSS JOIN (SELECT * FROM {table} WHERE {filter}) t
             ORDER BY i",
            columns.join(", "),
            values.join(", ")
        );
        transaction.execute(
            &sql,
            rusqlite::params![job, lease, have.cast_signed(), count.cast_signed()],
        )?;
    }
    transaction.commit()
}
