//! Help pages as snapshots, in both languages.

use crate::client::User;

const PAGES: &[&[&str]] = &[
    &[],
    &["run"],
    &["sync"],
    &["submit"],
    &["logs"],
    &["get"],
    &["get", "jobs"],
    &["get", "usage"],
    &["describe", "job"],
    &["stop", "job"],
    &["resume"],
    &["delete", "job"],
    &["price"],
    &["price", "summary"],
    &["price", "list"],
    &["price", "recommend"],
    &["login"],
    &["whoami"],
    &["logout"],
    &["serve"],
    &["token"],
    &["token", "create"],
    &["token", "list"],
    &["token", "revoke"],
    &["admin"],
    &["admin", "leases"],
    &["admin", "sweep"],
    &["version"],
    &["completions"],
];

fn pages(lang: &str) -> String {
    let user = User::new(None);
    let page = |path: &&[&str]| {
        let arguments = [&["--lang", lang], *path, &["--help"]].concat();
        let done = user.run(&arguments).expect(0);
        assert_eq!(done.stderr, "");
        format!("$ runwhere {}\n{}", path.join(" "), done.stdout)
    };
    PAGES.iter().map(page).collect::<Vec<_>>().join("\n")
}

#[test]
fn help_in_chinese() {
    insta::assert_snapshot!(pages("zh"));
}

#[test]
fn help_in_english() {
    insta::assert_snapshot!(pages("en"));
}
