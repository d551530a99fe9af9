//! Reading a file through, keeping a part of it.

/// Takes a file piece by piece and keeps what matters.
pub trait Extract: Send {
    /// The next piece; the reason where the file is not what it should be.
    fn feed(&mut self, chunk: &[u8]) -> Result<(), String>;
    /// What was kept, once the file has ended.
    fn finish(&mut self) -> Result<Vec<u8>, String>;
}
