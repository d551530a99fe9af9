//! One followed job.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::unseen;
use crate::api::{ApiError, Client, LiveEvent, LiveFrame, LiveSocket, View};
use crate::failure::{Exit, Failure, Outcome};
use crate::printer::Printer;
use crate::texts;

/// Lines remembered for servers that cannot resume.
const REMEMBERED: usize = 5000;
/// A server that stays away longer than this ends the following.
const PATIENCE: Duration = Duration::from_secs(600);
const FIRST_PAUSE: Duration = Duration::from_millis(300);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long an end event may be ahead of the job's record.
const SETTLE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_secs(2);

/// How a followed job ended: the job as the server describes it after the end.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The job.
    pub job: Value,
}

/// Follows one job and prints its log.
#[derive(Debug)]
pub struct Follower<'a> {
    client: &'a Client,
    job: String,
    printer: &'a Printer,
    cursor: Option<String>,
    poll_only: bool,
    can_resume: bool,
    printed: VecDeque<String>,
    status: Option<String>,
}

impl<'a> Follower<'a> {
    /// A follower of `job` (a name or id that was checked).
    #[must_use]
    pub fn new(client: &'a Client, job: &str, printer: &'a Printer) -> Self {
        Self {
            client,
            job: job.to_owned(),
            printer,
            cursor: None,
            poll_only: false,
            can_resume: true,
            printed: VecDeque::new(),
            status: None,
        }
    }

    /// Prints the last `tail` lines, to go on behind them.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn start_with_tail(&mut self, tail: u32) -> Result<(), ApiError> {
        let answer =
            self.client.get(&format!("/api/v1/jobs/{}/logs?tail={tail}", self.job)).await?;
        let view = View(&answer);
        self.cursor = view.text("cursor");
        // Without a cursor the live log would begin with its first line again.
        self.can_resume = self.cursor.is_some();
        self.poll_only = self.cursor.is_none();
        for line in view.list("lines") {
            self.line(line_text(line));
        }
        Ok(())
    }

    async fn connect(&self) -> Result<LiveSocket, ApiError> {
        LiveSocket::connect(self.client, &self.job, self.cursor.as_deref()).await
    }

    /// Prints events until the job has ended.
    ///
    /// # Errors
    /// The server's refusals (exit code 3), or the network's after ten minutes (exit code 4).
    pub async fn run_to_end(&mut self) -> Outcome<Ended> {
        if self.poll_only {
            return self.poll().await;
        }
        let mut pause = FIRST_PAUSE;
        let mut lost_since: Option<Instant> = None;
        loop {
            match self.connect().await {
                Ok(mut socket) => {
                    // Only a socket that really delivers ends the outage.
                    if let Some(ended) =
                        self.listen(&mut socket, &mut lost_since, &mut pause).await?
                    {
                        return Ok(ended);
                    }
                }
                Err(ApiError::Server(error)) if matches!(error.status, 401 | 403) => {
                    return Err(ApiError::Server(error).into());
                }
                // No WebSocket here (a proxy in between, or an older server): the plain way works, too.
                Err(ApiError::Server(error)) if error.status < 500 => return self.poll().await,
                Err(ApiError::Unreadable { .. } | ApiError::Redirect { .. }) => {
                    return self.poll().await;
                }
                Err(ApiError::Server(_) | ApiError::Network { .. }) => {}
            }
            let since = *lost_since.get_or_insert_with(|| {
                self.printer.note(&texts::live_reconnecting());
                Instant::now()
            });
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match self.look().await {
                Ok(Some(job)) => return self.last_words(job).await,
                Ok(None) if !self.can_resume => return self.poll().await,
                Ok(None) => {}
                Err(error) if is_passing(&error) && since.elapsed() < PATIENCE => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads the socket; `None` when the connection ended before the job did.
    async fn listen(
        &mut self,
        socket: &mut LiveSocket,
        lost_since: &mut Option<Instant>,
        pause: &mut Duration,
    ) -> Outcome<Option<Ended>> {
        loop {
            let LiveFrame::Event(event) = socket.next().await else { return Ok(None) };
            *lost_since = None;
            *pause = FIRST_PAUSE;
            match event {
                LiveEvent::Log { line, cursor } => {
                    self.can_resume = cursor.is_some();
                    self.cursor = cursor.or(self.cursor.take());
                    self.line(line);
                }
                LiveEvent::Status(status) => self.status_changed(&status),
                LiveEvent::Provision(phase) => self.printer.diagnostic(&texts::live_status(phase)),
                LiveEvent::Url(url) => {
                    self.printer.out(&texts::live_url(&url));
                    self.printer.json(&json!({"url": url}));
                }
                LiveEvent::Completed(payload) | LiveEvent::Failed(payload) => {
                    return self.ended(&payload).await.map(Some);
                }
            }
        }
    }

    fn status_changed(&mut self, status: &str) {
        if self.status.as_deref() != Some(status) {
            self.status = Some(status.to_owned());
            self.printer.diagnostic(&texts::live_status(status));
        }
    }

    fn line(&mut self, line: String) {
        if self.printer.is_json() {
            self.printer.json(&json!({"line": line, "cursor": self.cursor}));
        } else {
            self.printer.log_line(&line);
        }
        if self.printed.len() == REMEMBERED {
            self.printed.pop_front();
        }
        self.printed.push_back(line);
    }

    /// After the end event: the job's own record says how it ended.
    async fn ended(&self, payload: &Value) -> Outcome<Ended> {
        let since = Instant::now();
        loop {
            match self.fetch().await {
                Ok(job) if is_terminal(View(&job)) => return Ok(Ended { job }),
                // The server gave up on this conversation, not the job on its work.
                Ok(_) if since.elapsed() > SETTLE => {
                    let said = View(payload).first_text(&["error", "message"]).unwrap_or_default();
                    let text = texts::live_broken(said);
                    return Err(Failure::new(Exit::Server, "live_broken", text));
                }
                Ok(_) => sleep(FIRST_PAUSE).await,
                Err(error) if is_passing(&error) && since.elapsed() < PATIENCE => sleep(POLL).await,
                Err(ApiError::Server(error)) if error.status == 404 => {
                    let said = View(payload).first_text(&["error", "message"]);
                    return Err(match said {
                        Some(said) if error.message.is_none() => {
                            Failure::new(Exit::Server, "not_found", texts::Text::same(said))
                        }
                        _ => ApiError::Server(error).into(),
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn fetch(&self) -> Result<Value, ApiError> {
        self.client.get(&format!("/api/v1/jobs/{}", self.job)).await
    }

    /// The job, if it has ended.
    async fn look(&self) -> Result<Option<Value>, ApiError> {
        let job = self.fetch().await?;
        Ok(is_terminal(View(&job)).then_some(job))
    }

    /// The job ended while nobody was connected: prints what is left of its log.
    async fn last_words(&mut self, job: Value) -> Outcome<Ended> {
        if self.can_resume
            && let Ok(mut socket) = self.connect().await
            && let Some(ended) =
                self.listen(&mut socket, &mut None, &mut FIRST_PAUSE.clone()).await?
        {
            return Ok(ended);
        }
        self.catch_up().await?;
        Ok(Ended { job })
    }

    async fn catch_up(&mut self) -> Result<(), ApiError> {
        let answer =
            self.client.get(&format!("/api/v1/jobs/{}/logs?tail={REMEMBERED}", self.job)).await?;
        let history: Vec<String> = View(&answer).list("lines").iter().map(line_text).collect();
        let (new, gap) = unseen(&self.printed, &history);
        if gap {
            self.printer.warn(&texts::live_gap());
        }
        for line in new {
            self.line(line.clone());
        }
        Ok(())
    }

    async fn poll(&mut self) -> Outcome<Ended> {
        let mut since = Instant::now();
        loop {
            let step = async {
                // The state first: what a program said before its end is then in the log that is read next.
                let job = self.look().await?;
                self.catch_up().await?;
                Ok::<_, ApiError>(job)
            };
            match step.await {
                Ok(Some(job)) => return Ok(Ended { job }),
                Ok(None) => since = Instant::now(),
                Err(error) if is_passing(&error) && since.elapsed() < PATIENCE => {}
                Err(error) => return Err(error.into()),
            }
            sleep(POLL).await;
        }
    }
}

fn is_passing(error: &ApiError) -> bool {
    match error {
        ApiError::Network { .. } => true,
        ApiError::Server(error) => error.status >= 500 || error.status == 429,
        ApiError::Unreadable { .. } | ApiError::Redirect { .. } => false,
    }
}

/// Whether a job has ended.
#[must_use]
pub fn is_terminal(job: View<'_>) -> bool {
    let status = job.text("status").unwrap_or_default();
    matches!(status.as_str(), "succeeded" | "completed" | "failed" | "stopped" | "cancelled")
}

/// A line of the history; anything but a string is printed as it stands.
pub fn line_text(line: &Value) -> String {
    match line {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
