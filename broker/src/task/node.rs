//! The text as a tree in which every value knows its place.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use super::place::{FieldPath, Position};
use super::problem::{Found, Problem, Problems, TaskErrors};
use super::rules::MAX_FILE_BYTES;
use super::scalar;
use super::shown::{limited, shown};

/// Most levels of nesting. A proper file has five.
const MAX_DEPTH: usize = 32;
/// Most values, keys included, with aliases expanded.
const MAX_NODES: usize = 20_000;
/// Most bytes of text in all values, with aliases expanded.
const MAX_TEXT_BYTES: usize = 2 * MAX_FILE_BYTES;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) body: Body,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// A scalar; `quoted` words are always text.
    Scalar {
        text: String,
        quoted: bool,
    },
    List(Vec<Node>),
    /// In the order of the text; a key may be anything and may repeat.
    Map(Vec<(Node, Node)>),
}

impl Node {
    /// What the value is, as a word for a sentence.
    pub(super) fn found(&self) -> Found {
        match &self.body {
            Body::Scalar { quoted: true, .. } => Found::Text,
            Body::Scalar { text, quoted: false } => scalar::plain(text),
            Body::List(_) => Found::List,
            Body::Map(_) => Found::Mapping,
        }
    }

    /// The text of a scalar that is a string.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.body {
            Body::Scalar { text, .. } if self.found() == Found::Text => Some(text),
            _ => None,
        }
    }
}

/// Reads one YAML document. Problems that leave a tree (tags, keys) go to `problems`; others end the reading.
pub(super) fn read(text: &str, problems: &mut Problems) -> Result<Node, TaskErrors> {
    if text.len() > MAX_FILE_BYTES {
        return Err(Problems::single(
            Position::START,
            Problem::FileTooLarge { max_bytes: MAX_FILE_BYTES },
        ));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    refuse_control_characters(text)?;
    let root = Builder::default().run(text, problems)?;
    check_keys(&root, &FieldPath::root(), problems);
    Ok(root)
}

/// The YAML grammar has no raw control characters; the parser would take a NUL for the end of the text.
fn refuse_control_characters(text: &str) -> Result<(), TaskErrors> {
    let allowed = |c: char| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\u{85}');
    let Some((offset, c)) = text.char_indices().find(|&(_, c)| !allowed(c)) else {
        return Ok(());
    };
    Err(Problems::single(
        end_of(&text[..offset]),
        Problem::ControlCharacter { code_point: u32::from(c) },
    ))
}

/// The place right behind `text`. Line breaks are those of YAML: LF, CR LF and a lone CR.
pub(super) fn end_of(text: &str) -> Position {
    let line_start = text.rfind(['\n', '\r']).map_or(0, |last| last + 1);
    let breaks = text.matches(['\n', '\r']).count() - text.matches("\r\n").count();
    Position { line: number(breaks) + 1, column: number(text[line_start..].chars().count()) + 1 }
}

/// What the parser refuses: either nesting beyond its own limit or no YAML at all.
fn refused(error: &ScanError, end: Position) -> TaskErrors {
    let info = error.info();
    let problem = if info.contains("recursion limit") {
        Problem::TooDeep { max: MAX_DEPTH }
    } else {
        Problem::Syntax { detail: limited(&info.replace(['[', ']'], "bracket"), 160) }
    };
    Problems::single(position(error.marker()).min(end), problem)
}

fn number(count: usize) -> u32 {
    // A text is limited to 1 MiB, so this never saturates.
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn position(mark: &Marker) -> Position {
    Position { line: number(mark.line()).max(1), column: number(mark.col()) + 1 }
}

/// How much of the limits a value uses.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
}

impl Size {
    fn add(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.bytes += other.bytes;
    }

    fn is_too_much(self) -> bool {
        self.nodes > MAX_NODES || self.bytes > MAX_TEXT_BYTES
    }
}

/// A collection whose end has not been seen.
struct Frame {
    at: Position,
    anchor: usize,
    size: Size,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<(Node, Node)>, key: Option<Node> },
}

#[derive(Default)]
struct Builder {
    open: Vec<Frame>,
    root: Option<Node>,
    documents: usize,
    /// Finished values with an anchor; one that is still open is not here, so an alias cannot contain itself.
    anchors: HashMap<usize, (Node, Size)>,
    /// Everything so far, aliases expanded.
    total: Size,
}

impl Builder {
    fn run(mut self, text: &str, problems: &mut Problems) -> Result<Node, TaskErrors> {
        let mut parser = Parser::new_from_str(text);
        // At the end of a text without a final line break the parser stands on a line that is not there.
        let end = end_of(text);
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| refused(&error, end))?;
            let at = position(&span.start).min(end);
            if matches!(event, Event::StreamEnd) {
                break;
            }
            self.event(event, at, problems).map_err(|problem| Problems::single(at, problem))?;
        }
        // An empty text has no document at all.
        Ok(self.root.unwrap_or(Node {
            at: Position::START,
            body: Body::Scalar { text: String::new(), quoted: false },
        }))
    }

    fn event(
        &mut self,
        event: Event<'_>,
        at: Position,
        problems: &mut Problems,
    ) -> Result<(), Problem> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(Problem::SeveralDocuments);
                }
            }
            Event::Alias(anchor) => {
                let size = self.anchors.get(&anchor).ok_or(Problem::RecursiveAlias)?.1;
                self.charge(size)?;
                let mut node = self.anchors[&anchor].0.clone();
                node.at = at;
                self.complete(node, size, 0);
            }
            Event::Scalar(text, style, anchor, tag) => {
                let string_tag = check_tag(tag.as_deref(), &["str"], at, problems);
                let size = Size { nodes: 1, bytes: text.len() };
                self.charge(size)?;
                let quoted = style != ScalarStyle::Plain || string_tag;
                self.complete(
                    Node { at, body: Body::Scalar { text: text.into_owned(), quoted } },
                    size,
                    anchor,
                );
            }
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), &["seq"], at, problems);
                self.enter(at, anchor, Content::List(Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), &["map"], at, problems);
                self.enter(at, anchor, Content::Map { entries: Vec::new(), key: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(frame) = self.open.pop() {
                    let body = match frame.content {
                        Content::List(items) => Body::List(items),
                        Content::Map { entries, .. } => Body::Map(entries),
                    };
                    self.complete(Node { at: frame.at, body }, frame.size, frame.anchor);
                }
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn charge(&mut self, size: Size) -> Result<(), Problem> {
        self.total.add(size);
        if self.total.is_too_much() { Err(Problem::TooComplex) } else { Ok(()) }
    }

    fn enter(&mut self, at: Position, anchor: usize, content: Content) -> Result<(), Problem> {
        if self.open.len() == MAX_DEPTH {
            return Err(Problem::TooDeep { max: MAX_DEPTH });
        }
        let size = Size { nodes: 1, bytes: 0 };
        self.charge(size)?;
        self.open.push(Frame { at, anchor, size, content });
        Ok(())
    }

    fn complete(&mut self, node: Node, size: Size, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size));
        }
        let Some(frame) = self.open.last_mut() else {
            self.root = Some(node);
            return;
        };
        frame.size.add(size);
        match &mut frame.content {
            Content::List(items) => items.push(node),
            Content::Map { entries, key } => match key.take() {
                None => *key = Some(node),
                Some(key) => entries.push((key, node)),
            },
        }
    }
}

/// Refuses every tag but the plain ones that say what the value is anyway. Whether it makes a scalar a string.
fn check_tag(tag: Option<&Tag>, core: &[&str], at: Position, problems: &mut Problems) -> bool {
    let Some(tag) = tag else { return false };
    let non_specific = tag.handle.is_empty() && tag.suffix == "!";
    if non_specific || (tag.is_yaml_core_schema() && core.contains(&tag.suffix.as_str())) {
        return true;
    }
    let name = if tag.is_yaml_core_schema() {
        format!("!!{}", tag.suffix)
    } else {
        format!("{}{}", tag.handle, tag.suffix)
    };
    problems.report(&FieldPath::root(), at, Problem::TagRefused { tag: shown(&name) });
    true
}

/// Reports keys that repeat or are no strings, at any depth. The depth of the tree is limited.
fn check_keys(node: &Node, path: &FieldPath, problems: &mut Problems) {
    match &node.body {
        Body::Scalar { .. } => {}
        Body::List(items) => {
            for (index, item) in items.iter().enumerate() {
                if !matches!(item.body, Body::Scalar { .. }) {
                    check_keys(item, &path.index(index), problems);
                }
            }
        }
        Body::Map(entries) => {
            let mut seen: HashMap<&str, u32> = HashMap::new();
            let mut reported: HashSet<&str> = HashSet::new();
            for (key, value) in entries {
                let Some(name) = key.text() else {
                    problems.report(path, key.at, Problem::KeyNotText { found: key.found() });
                    continue;
                };
                match seen.get(name) {
                    Some(&first_line) if reported.insert(name) => {
                        let problem = Problem::DuplicateKey { key: shown(name), first_line };
                        problems.report(&path.key(name), key.at, problem);
                    }
                    Some(_) => {}
                    None => {
                        seen.insert(name, key.at.line);
                    }
                }
                if !matches!(value.body, Body::Scalar { .. }) {
                    check_keys(value, &path.key(name), problems);
                }
            }
        }
    }
}
