//! Work that takes a processor or a disk a while, beside the threads that answer.

/// Does the work on a thread of its own; a panic goes on in the caller.
pub(super) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // Cancelled only where the whole runtime ends, and with it the caller.
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => std::future::pending().await,
        },
    }
}
