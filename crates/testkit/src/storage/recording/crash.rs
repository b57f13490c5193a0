//! The states in which a power cut can leave a recorded disk.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use super::Event;
use super::content::{Content, SECTOR_BYTES, Sector};

/// What is on a disk: names and bytes.
#[derive(Clone, Debug, Default)]
pub struct Image(BTreeMap<String, Content>);

impl Image {
    /// The names of all files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The size of a file in bytes, if it is there.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.0.get(name).map(Content::size)
    }

    /// Changes what a file holds at `offset`, as a failing disk would; it does not grow.
    pub fn damage(&mut self, name: &str, offset: u64, change: impl FnOnce(&mut u8)) {
        if let Some(content) = self.0.get_mut(name) {
            let sector = content.sector(offset / SECTOR_BYTES as u64);
            let mut byte = sector[(offset % SECTOR_BYTES as u64) as usize];
            change(&mut byte);
            content.write(offset, &[byte]);
        }
    }

    /// Removes a file.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&String, &Content)> {
        self.0.iter()
    }
}

/// The disk at some moment of a recording: what is durable, and what else there has been since.
#[derive(Clone, Debug, Default)]
pub(super) struct Replay {
    position: usize,
    files: Vec<FileReplay>,
    names: BTreeMap<String, usize>,
    name_changes: Vec<NameChange>,
    notes: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
struct FileReplay {
    /// What reads return.
    cached: Content,
    synced: Content,
    /// What each sector has held since it was last synced.
    sectors: BTreeMap<u64, Vec<(usize, Sector)>>,
    /// The sizes the file has had since it was last synced.
    sizes: Vec<(usize, u64)>,
    /// The event of the last failed sync. What was written before may never arrive.
    failed: Option<usize>,
}

#[derive(Clone, Debug)]
enum NameChange {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

impl Replay {
    /// A disk that holds what the image does, all of it durable. Files are numbered in the order of their names.
    pub(super) fn of(image: &Image) -> Self {
        let files = image.0.values().map(|content| FileReplay {
            cached: content.clone(),
            synced: content.clone(),
            ..FileReplay::default()
        });
        Self {
            files: files.collect(),
            names: image.0.keys().cloned().zip(0..).collect(),
            ..Self::default()
        }
    }

    /// What is durable.
    pub(super) fn synced(&self) -> Image {
        let mut dice = Dice(0);
        self.image(&mut dice, Some(Survivors::None))
    }

    pub(super) fn advance_to(&mut self, events: &[Event], position: usize) {
        while self.position < position
            && let Some(event) = events.get(self.position)
        {
            self.apply(event);
            self.position += 1;
        }
    }

    fn apply(&mut self, event: &Event) {
        let now = self.position;
        match event {
            Event::Write {
                file,
                offset,
                bytes,
            } => self.file(*file).write(now, *offset, bytes),
            Event::Size { file, size } => self.file(*file).resize(now, *size),
            Event::Sync {
                file,
                succeeded: true,
            } => self.file(*file).sync_sectors(&(0..u64::MAX)),
            Event::SyncRange {
                file,
                offset,
                length,
                succeeded: true,
            } => self
                .file(*file)
                .sync_sectors(&Content::sectors(*offset, *length)),
            Event::Sync { file, .. } | Event::SyncRange { file, .. } => {
                self.file(*file).failed = Some(now);
            }
            Event::Create { name, file } => self
                .name_changes
                .push(NameChange::Create(name.clone(), *file)),
            Event::Rename { from, to } => self
                .name_changes
                .push(NameChange::Rename(from.clone(), to.clone())),
            Event::Remove { name } => self.name_changes.push(NameChange::Remove(name.clone())),
            Event::SyncNames => {
                for change in self.name_changes.drain(..) {
                    change.apply(&mut self.names);
                }
            }
            Event::Note(note) => self.notes.push(*note),
        }
    }

    fn file(&mut self, number: usize) -> &mut FileReplay {
        if self.files.len() <= number {
            self.files.resize_with(number + 1, FileReplay::default);
        }
        &mut self.files[number]
    }

    /// One of the states a power cut can leave; `survivors` for all files, or for each file something else.
    fn image(&self, dice: &mut Dice, survivors: Option<Survivors>) -> Image {
        let mut names = self.names.clone();
        let kept = match survivors {
            Some(Survivors::None) => 0,
            Some(Survivors::All) => self.name_changes.len(),
            _ => dice.below(self.name_changes.len() + 1),
        };
        for change in &self.name_changes[..kept] {
            change.apply(&mut names);
        }
        let nothing = FileReplay::default();
        let files = names.into_iter().map(|(name, number)| {
            let file = self.files.get(number).unwrap_or(&nothing);
            let survivors = survivors.unwrap_or_else(|| Survivors::throw(dice, self.position));
            (name, file.content(dice, survivors))
        });
        Image(files.collect())
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Create(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl FileReplay {
    fn write(&mut self, now: usize, offset: u64, bytes: &[u8]) {
        self.cached.write(offset, bytes);
        for sector in Content::sectors(offset, bytes.len()) {
            self.see(now, sector);
        }
    }

    fn see(&mut self, now: usize, sector: u64) {
        let content = self.cached.sector(sector);
        let versions = self.sectors.get(&sector);
        let last = versions.and_then(|versions| versions.last());
        let unchanged = match last {
            Some((event, last)) => self.is_certain(*event) && *last == content,
            None => self.synced.sector(sector) == content,
        };
        if !unchanged {
            self.sectors.entry(sector).or_default().push((now, content));
        }
    }

    fn resize(&mut self, now: usize, size: u64) {
        let old_size = self.cached.size();
        if size < old_size {
            self.cached.clear_from(size);
            for sector in Content::sectors(size, (old_size - size) as usize) {
                self.see(now, sector);
            }
        }
        self.cached.set_size(size);
        self.sizes.push((now, size));
    }

    /// Whether the next successful sync covers an event, because no sync has failed since.
    fn is_certain(&self, event: usize) -> bool {
        self.failed.is_none_or(|failed| event > failed)
    }

    /// Makes the newest content of these sectors durable, but for what an earlier sync has failed to write and nobody
    /// wrote again, and the size.
    fn sync_sectors(&mut self, synced: &Range<u64>) {
        let mut sectors = std::mem::take(&mut self.sectors);
        sectors.retain(|sector, versions| match versions.last() {
            Some((event, content)) if synced.contains(sector) && self.is_certain(*event) => {
                self.synced.write(*sector * SECTOR_BYTES as u64, content);
                false
            }
            _ => true,
        });
        self.sectors = sectors;
        // A size stands in the file system's journal: where that cannot be written, no later sync succeeds either.
        if let Some((_, size)) = self.sizes.pop() {
            self.synced.set_size(size);
            self.sizes.clear();
        }
    }

    fn content(&self, dice: &mut Dice, survivors: Survivors) -> Content {
        let mut content = self.synced.clone();
        for (sector, versions) in &self.sectors {
            if let Some(survivor) = survivors.choose(dice, versions) {
                content.write(*sector * SECTOR_BYTES as u64, survivor);
            }
        }
        if let Some(size) = survivors.choose(dice, &self.sizes) {
            content.set_size(*size);
        }
        content.clear_from(content.size());
        content
    }
}

/// What of a file's unsynced changes survives a power cut.
#[derive(Clone, Copy, Debug)]
enum Survivors {
    None,
    All,
    /// Each sector has a content of its own choice.
    AnySectors,
    /// Each change survives wholly or not at all: so many in 16, by lot.
    AnyEvents {
        of_16: u64,
        lot: u64,
    },
    /// All changes before an event.
    Before(usize),
    /// All changes but one.
    AllBut(usize),
}

impl Survivors {
    fn throw(dice: &mut Dice, events: usize) -> Self {
        // The newest events are those that matter.
        let recent = events.saturating_sub(dice.below(24));
        match dice.below(8) {
            0 => Self::None,
            1 => Self::All,
            2 | 3 => Self::AnySectors,
            4 | 5 => Self::AnyEvents {
                of_16: 1 + dice.below(15) as u64,
                lot: dice.roll(),
            },
            6 => Self::Before(recent),
            _ => Self::AllBut(recent),
        }
    }

    /// Picks one of the contents since the last sync, or none of them.
    fn choose<'a, T>(self, dice: &mut Dice, versions: &'a [(usize, T)]) -> Option<&'a T> {
        let newest_of = |kept: &dyn Fn(usize) -> bool| {
            let newest = versions.iter().rev().find(|(event, _)| kept(*event));
            newest.map(|(_, content)| content)
        };
        match self {
            Self::None => None,
            Self::All => newest_of(&|_| true),
            Self::AnySectors => {
                let choice = dice.below(versions.len() + 1);
                choice.checked_sub(1).map(|choice| &versions[choice].1)
            }
            Self::AnyEvents { of_16, lot } => {
                newest_of(&|event| Dice(lot ^ event as u64).roll() % 16 < of_16)
            }
            Self::Before(end) => newest_of(&|event| event < end),
            Self::AllBut(lost) => newest_of(&|event| event != lost),
        }
    }
}

/// A state in which a power cut can have left the disk.
#[derive(Clone, Debug)]
pub struct Crash {
    event: usize,
    survivors: &'static str,
    notes: Vec<u64>,
    image: Image,
}

impl Crash {
    /// The notes ([`Disk::note`](super::Disk::note)) that had been added before the power cut.
    pub fn notes(&self) -> &[u64] {
        &self.notes
    }

    /// What is on the disk.
    pub fn image(&self) -> &Image {
        &self.image
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            event, survivors, ..
        } = self;
        write!(formatter, "power cut after event {event}, {survivors}")
    }
}

/// The states of [`Disk::crashes`](super::Disk::crashes), in the order of the recording.
#[derive(Clone, Debug)]
pub struct Crashes {
    replay: Replay,
    events: Vec<Event>,
    dice: Dice,
    states: usize,
    next: usize,
}

impl Crashes {
    pub(super) fn new(replay: Replay, events: Vec<Event>, seed: u64, states: usize) -> Self {
        Self {
            replay,
            events,
            dice: Dice(seed),
            states,
            next: 0,
        }
    }

    fn moment_of(&self, state: usize) -> usize {
        let moments = self.events.len() as u128 + 1;
        let moment = state as u128 * moments / (self.states.max(1) as u128);
        usize::try_from(moment).unwrap_or(usize::MAX)
    }
}

impl Iterator for Crashes {
    type Item = Crash;

    fn next(&mut self) -> Option<Crash> {
        if self.next >= self.states {
            return None;
        }
        let event = self.moment_of(self.next);
        let is_first = self.next == 0 || self.moment_of(self.next - 1) != event;
        let is_last = self.moment_of(self.next + 1) != event;
        self.next += 1;
        self.replay.advance_to(&self.events, event);
        // Every moment that is looked at more than once is looked at without any survivors and with all.
        let (survivors, name) = match (is_first, is_last) {
            (true, true) => (None, "something unsynced survived"),
            (true, false) => (Some(Survivors::None), "nothing unsynced survived"),
            (false, true) => (Some(Survivors::All), "everything survived"),
            (false, false) => (None, "something unsynced survived"),
        };
        Some(Crash {
            event,
            survivors: name,
            notes: self.replay.notes.clone(),
            image: self.replay.image(&mut self.dice, survivors),
        })
    }
}

/// Reproducible chance (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below the limit; 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.roll() % limit.max(1) as u64) as usize
    }
}
