//! Random operations on a container and on the standard library's give the same answers.

use std::collections::{HashMap as StdMap, VecDeque};
use std::fmt::Debug;

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sapwood_xact::{
    Fault, HASH_MAP_KEY_BYTES_MAX, HashMap, Memory, Mode, Options, Plain, Ptr, Queue, Space, Text,
    Vector,
};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Push(u64),
    /// So many more.
    Fill(u16),
    Pop,
    /// So many times.
    Drain(u16),
    Get(u16),
    Set(u16, u64),
    Clear,
    Insert(Vec<u8>, Vec<u8>),
    /// So many keys.
    Run(u8, u16),
    Remove(Vec<u8>),
    Look(Vec<u8>),
    Say(String),
    Append(String),
    Check,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(0..4_u8, 0..4),
        1 => prop::collection::vec(any::<u8>(), 0..HASH_MAP_KEY_BYTES_MAX),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![4 => 0..30_usize, 1 => 400..9000_usize];
    (any::<u8>(), length).prop_map(|(byte, length)| vec![byte; length])
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => any::<u64>().prop_map(Step::Push),
        1 => (0..900_u16).prop_map(Step::Fill),
        3 => Just(Step::Pop),
        1 => (0..900_u16).prop_map(Step::Drain),
        2 => any::<u16>().prop_map(Step::Get),
        2 => (any::<u16>(), any::<u64>()).prop_map(|(at, value)| Step::Set(at, value)),
        1 => Just(Step::Clear),
        6 => (key(), value()).prop_map(|(key, value)| Step::Insert(key, value)),
        1 => (any::<u8>(), 0..400_u16).prop_map(|(byte, count)| Step::Run(byte, count)),
        4 => key().prop_map(Step::Remove),
        2 => key().prop_map(Step::Look),
        2 => ".{0,40}".prop_map(Step::Say),
        2 => ".{0,40}".prop_map(Step::Append),
        1 => Just(Step::Check),
    ];
    prop::collection::vec(step, 1..60)
}

/// The keys of a [`Step::Run`].
fn run_of(byte: u8, count: u16) -> impl Iterator<Item = [u8; 3]> {
    (0..count).map(move |number| [byte, number as u8, (number >> 8) as u8])
}

/// Where the containers of a test are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) vector: u64,
    pub(crate) queue: u64,
    pub(crate) map: u64,
    pub(crate) text: u64,
}

impl Places {
    pub(crate) fn create<M: Memory>(memory: &mut M) -> Result<Self, M::Error> {
        Ok(Self {
            vector: Vector::<_, u64>::create(&mut *memory)?.offset(),
            queue: Queue::<_, (u64, [u8; 3])>::create(&mut *memory).map(|queue| queue.offset())?,
            map: HashMap::create(&mut *memory)?.offset(),
            text: Text::create(&mut *memory, "")?.offset(),
        })
    }
}

/// What the containers should hold.
#[derive(Default)]
pub(crate) struct Model {
    vector: Vec<u64>,
    queue: VecDeque<(u64, [u8; 3])>,
    map: StdMap<Vec<u8>, Vec<u8>>,
    text: String,
}

/// Does a step in both and compares the answers.
pub(crate) fn step<M: Memory<Error: Debug>>(
    memory: &mut M,
    places: Places,
    model: &mut Model,
    step: &Step,
) -> TestCaseResult {
    let mut vector: Vector<_, u64> = Vector::open(&mut *memory, places.vector).unwrap();
    match step {
        Step::Push(value) => {
            vector.push(value).unwrap();
            model.vector.push(*value);
        }
        Step::Fill(count) => {
            for value in 0..u64::from(*count) {
                vector.push(&value).unwrap();
                model.vector.push(value);
            }
        }
        Step::Pop => prop_assert_eq!(vector.pop().unwrap(), model.vector.pop()),
        Step::Drain(count) => {
            for _ in 0..*count {
                prop_assert_eq!(vector.pop().unwrap(), model.vector.pop());
            }
        }
        Step::Get(at) => {
            let expected = model.vector.get(usize::from(*at)).copied();
            prop_assert_eq!(vector.get(u64::from(*at)).unwrap(), expected);
        }
        Step::Set(at, value) => {
            let place = model.vector.get_mut(usize::from(*at));
            let is_there = vector.set(u64::from(*at), value).unwrap();
            prop_assert_eq!(is_there, place.map(|place| *place = *value).is_some());
        }
        Step::Clear => {
            vector.clear().unwrap();
            model.vector.clear();
        }
        Step::Check => {
            let values: Result<Vec<_>, _> = vector.iter().unwrap().collect();
            prop_assert_eq!(&values.unwrap(), &model.vector);
        }
        _ => {}
    }
    let mut queue: Queue<_, (u64, [u8; 3])> = Queue::open(&mut *memory, places.queue).unwrap();
    match step {
        Step::Push(value) => {
            queue.push(&(*value, [1, 2, 3])).unwrap();
            model.queue.push_back((*value, [1, 2, 3]));
        }
        Step::Fill(count) => {
            for value in 0..u64::from(*count) {
                queue.push(&(value, [4; 3])).unwrap();
                model.queue.push_back((value, [4; 3]));
            }
        }
        Step::Pop => {
            prop_assert_eq!(queue.front().unwrap(), model.queue.front().copied());
            prop_assert_eq!(queue.pop().unwrap(), model.queue.pop_front());
        }
        Step::Drain(count) => {
            for _ in 0..*count {
                prop_assert_eq!(queue.pop().unwrap(), model.queue.pop_front());
            }
        }
        Step::Check => {
            let values: Result<VecDeque<_>, _> = queue.iter().unwrap().collect();
            prop_assert_eq!(&values.unwrap(), &model.queue);
            prop_assert_eq!(queue.len().unwrap(), model.queue.len() as u64);
            prop_assert_eq!(queue.is_empty().unwrap(), model.queue.is_empty());
        }
        _ => {}
    }
    let mut map = HashMap::open(&mut *memory, places.map).unwrap();
    match step {
        Step::Insert(key, value) => {
            let is_new = map.insert(key, value).unwrap();
            prop_assert_eq!(
                is_new,
                model.map.insert(key.clone(), value.clone()).is_none()
            );
        }
        Step::Run(byte, count) => {
            for key in run_of(*byte, *count) {
                let is_new = map.insert(&key, &key).unwrap();
                prop_assert_eq!(
                    is_new,
                    model.map.insert(key.to_vec(), key.to_vec()).is_none()
                );
            }
        }
        Step::Remove(key) => {
            prop_assert_eq!(map.remove(key).unwrap(), model.map.remove(key).is_some());
        }
        Step::Look(key) => {
            prop_assert_eq!(map.get(key).unwrap(), model.map.get(key).map(Vec::as_slice));
        }
        Step::Check => {
            let pairs: Result<StdMap<_, _>, _> = map.iter().unwrap().map(owned).collect();
            prop_assert_eq!(&pairs.unwrap(), &model.map);
            prop_assert_eq!(map.len().unwrap(), model.map.len() as u64);
            prop_assert_eq!(map.is_empty().unwrap(), model.map.is_empty());
        }
        _ => {}
    }
    let mut text = Text::open(&mut *memory, places.text).unwrap();
    match step {
        Step::Say(new) => {
            text.set(new).unwrap();
            model.text.clone_from(new);
        }
        Step::Append(more) => {
            text.push_str(more).unwrap();
            model.text.push_str(more);
        }
        _ => {}
    }
    prop_assert_eq!(text.get().unwrap(), &model.text);
    prop_assert_eq!(text.len().unwrap(), model.text.len());
    Ok(())
}

/// Compares all that is there.
pub(crate) fn check<M: Memory<Error: Debug>>(
    memory: &mut M,
    places: Places,
    model: &mut Model,
) -> TestCaseResult {
    step(memory, places, model, &Step::Check)
}

/// So many cases, unless `PROPTEST_CASES` says otherwise.
pub(crate) fn cases(count: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: match std::env::var_os("PROPTEST_CASES") {
            Some(_) => default.cases,
            None => count,
        },
        failure_persistence: None,
        ..default
    }
}

type Pair<'m, E> = Result<(&'m [u8], &'m [u8]), E>;

fn owned<E>(pair: Pair<'_, E>) -> Result<(Vec<u8>, Vec<u8>), E> {
    pair.map(|(key, value)| (key.to_vec(), value.to_vec()))
}

proptest! {
    #![proptest_config(cases(200))]
    #[test]
    fn containers_in_plain_memory_are_those_of_the_standard_library(steps in steps()) {
        let mut memory = Plain::new();
        let places = Places::create(&mut memory).unwrap();
        let mut model = Model::default();
        for next in &steps {
            step(&mut memory, places, &mut model, next)?;
        }
        check(&mut memory, places, &mut model)?;
    }

}

proptest! {
    #![proptest_config(cases(40))]
    #[test]
    fn containers_in_transactions_are_too(steps in steps(), mode in 0..3_usize) {
        let mode = [Mode::Explicit, Mode::Tracked, Mode::Snapshot][mode];
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().mode(mode).bytes(64 << 20).log_bytes(1 << 20);
        let space = Space::open(folder.path(), &options).unwrap();
        let mut t = space.begin().unwrap();
        let places = Places::create(&mut t).unwrap();
        t.commit().unwrap();
        let mut model = Model::default();
        for steps in steps.chunks(5) {
            let mut t = space.begin().unwrap();
            for next in steps {
                step(&mut t, places, &mut model, next)?;
            }
            t.commit().unwrap();
        }
        check(&mut space.begin().unwrap(), places, &mut model)?;
    }
}

/// Memory that knows what was taken from it and not given back.
struct Counted {
    memory: Plain,
    taken: StdMap<u64, u64>,
}

impl Memory for Counted {
    type Error = Fault;

    fn read(&self, offset: u64, bytes: usize) -> Result<&[u8], Fault> {
        self.memory.read(offset, bytes)
    }

    fn write(&mut self, offset: u64, bytes: usize) -> Result<&mut [u8], Fault> {
        self.memory.write(offset, bytes)
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, Fault> {
        let offset = self.memory.allocate(bytes)?;
        assert_eq!(self.taken.insert(offset, bytes), None, "taken twice");
        Ok(offset)
    }

    fn free(&mut self, offset: u64, bytes: u64) -> Result<(), Fault> {
        assert_eq!(self.taken.remove(&offset), Some(bytes), "at {offset}");
        self.memory.free(offset, bytes)
    }

    fn root(&self) -> Result<u64, Fault> {
        self.memory.root()
    }

    fn set_root(&mut self, root: u64) -> Result<(), Fault> {
        self.memory.set_root(root)
    }
}

#[test]
fn what_containers_had_is_given_back() {
    let mut memory = Counted {
        memory: Plain::new(),
        taken: StdMap::new(),
    };
    let mut vector = Vector::<_, u64>::create(&mut memory).unwrap();
    (0..5000).for_each(|value| vector.push(&value).unwrap());
    vector.destroy().unwrap();
    let mut queue = Queue::<_, [u8; 9]>::create(&mut memory).unwrap();
    (0..5000).for_each(|_| queue.push(&[7; 9]).unwrap());
    (0..700).for_each(|_| assert!(queue.pop().unwrap().is_some()));
    queue.destroy().unwrap();
    let mut map = HashMap::create(&mut memory).unwrap();
    for number in 0..2000_u64 {
        let length = if number % 50 == 0 { 5000 } else { 20 };
        map.insert(&number.to_le_bytes(), &vec![1; length]).unwrap();
    }
    map.destroy().unwrap();
    let mut text = Text::create(&mut memory, "some").unwrap();
    (0..100).for_each(|_| text.push_str("thing more").unwrap());
    text.destroy().unwrap();
    assert_eq!(memory.taken, StdMap::new());
}

#[test]
fn a_pointer_into_a_vector_stays_good_while_it_grows() {
    let mut memory = Plain::new();
    let mut vector = Vector::<_, u64>::create(&mut memory).unwrap();
    vector.push(&11).unwrap();
    let first: Ptr<u64> = vector.ptr(0).unwrap().unwrap();
    for value in 0..10_000 {
        vector.push(&value).unwrap();
    }
    assert_eq!(vector.memory().load(first).unwrap(), 11);
}
