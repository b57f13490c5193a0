//! Synthetic contexts: small trees of entries that the server makes, and that no client adds or deletes. Their entries
//! have the form of stored ones, so that the same code evaluates filters on them and sends them, with the same scopes,
//! access, limits and pages. A file each, and a line in the table below.

mod context;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::changes::LostChange;
use crate::config::{Extensions, Settings};
use crate::error::{Error, Result};
use crate::schema::{NormalDn, Schema};
use crate::state::State;

use config::LocalConfig;
use root_dse::{Channel, RootDse};

pub(crate) use context::{Context, Synthetic};

/// What a file says of its context.
struct Definition {
    /// The DN of its first entry, of one RDN at most.
    suffix: &'static str,
    /// What it is, for people.
    what: &'static str,
    /// What changes it, as no update does; for people.
    remedy: &'static str,
    /// Whether it exists for the administrator alone.
    is_hidden: bool,
    /// What of the directory it follows.
    follows: Follows,
    /// Makes its entries, each before those below it: one list for all connections, or one for each kind of them.
    make: fn(&Server<'_>) -> Vec<Vec<Content>>,
}

/// What a context follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    /// Which extensions of the protocol are on: it is made once for each set of them.
    Extensions,
    /// The schema.
    Schema,
    /// All of its state.
    State,
    /// What the conflict log has: it is made anew each time.
    Conflicts,
}

impl Follows {
    /// Whether what was made in one state is good in another.
    fn is_good(self, made_in: &Arc<State>, state: &Arc<State>) -> bool {
        match self {
            Follows::Extensions => offered(made_in) == offered(state),
            Follows::Schema => made_in.schema.is_same(&state.schema),
            Follows::State => Arc::ptr_eq(made_in, state),
            Follows::Conflicts => false,
        }
    }
}

/// The number of what is on that the root DSE tells of, below [`OFFERED_SETS`].
fn offered(state: &State) -> usize {
    let Settings {
        extensions, dds, ..
    } = &state.settings;
    extensions.number() + usize::from(dds.is_some()) * Extensions::SETS
}

/// How many different ones there are.
const OFFERED_SETS: usize = 2 * Extensions::SETS;

macro_rules! synthetic_contexts {
    ($($name:ident $file:ident)*) => {
        $(pub(crate) mod $file;)*

        /// One of them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum SyntheticContext {
            $(#[doc = concat!("See `", stringify!($file), "`.")] $name,)*
        }

        impl SyntheticContext {
            const ALL: &[SyntheticContext] = &[$(SyntheticContext::$name),*];
            const DEFINITIONS: &[Definition] = &[$($file::CONTEXT),*];
        }
    };
}

synthetic_contexts! {
    RootDse root_dse
    Subschema subschema
    Config config
    Conflicts conflicts
}

/// An entry before it has its form.
struct Content {
    dn: String,
    /// Other DNs that lead to it.
    also: Vec<String>,
    /// Each a type's name and values. A type without values is left out. What follows from the tree is added.
    attributes: Vec<(&'static str, Vec<String>)>,
}

/// What synthetic contexts are made of.
pub(crate) struct Server<'s> {
    pub(crate) schema: &'s Schema,
    /// What only the server knows of the root DSE.
    pub(crate) root_dse: &'s RootDse,
    pub(crate) state: &'s State,
    /// When the directory was opened, as a Generalized Time.
    pub(crate) opened: &'s str,
    /// What is configured with the server.
    pub(crate) local: &'s LocalConfig,
    /// The latest lines of the conflict log, if they were asked for.
    pub(crate) conflicts: &'s [LostChange],
}

impl SyntheticContext {
    fn definition(self) -> &'static Definition {
        &SyntheticContext::DEFINITIONS[self as usize]
    }

    /// The DN of its first entry.
    pub(crate) fn suffix(self) -> &'static str {
        self.definition().suffix
    }

    /// What it is, for people.
    pub(crate) fn what(self) -> &'static str {
        self.definition().what
    }

    /// What changes it, for people.
    pub(crate) fn remedy(self) -> &'static str {
        self.definition().remedy
    }

    /// Whether it exists for the administrator alone.
    pub(crate) fn is_hidden(self) -> bool {
        self.definition().is_hidden
    }

    /// The DNs of their first entries, by [`SyntheticContext`].
    ///
    /// # Errors
    /// When the schema lacks an attribute type that they name.
    pub(crate) fn suffixes(schema: &Schema) -> Result<Vec<NormalDn>> {
        let normal = |context: &SyntheticContext| {
            let mut suffix = NormalDn::new();
            let parsed = suffix.parse(schema, context.suffix().as_bytes());
            parsed.map_err(|error| Error::State(format!("{}: {error}", context.suffix())))?;
            Ok(suffix)
        };
        SyntheticContext::ALL.iter().map(normal).collect()
    }
}

/// All synthetic contexts of a directory.
pub(crate) struct SyntheticContexts {
    /// By [`SyntheticContext`].
    suffixes: Vec<NormalDn>,
    /// The same: those that follow what is on, by the number of the set, and for each kind of connection. They are
    /// asked for without a lock.
    by_extensions: Vec<[OnceLock<Vec<Arc<Context>>>; OFFERED_SETS]>,
    following: Mutex<Following>,
    opened: String,
}

/// The contexts that follow the state, as they were made last.
#[derive(Default)]
struct Following {
    local: LocalConfig,
    made: Vec<(SyntheticContext, Arc<State>, Arc<Context>)>,
}

impl SyntheticContexts {
    /// Makes them.
    ///
    /// # Errors
    /// When the schema lacks an attribute of one, or the form of entries cannot hold it.
    pub(crate) fn new(
        root_dse: &RootDse,
        state: &State,
        opened: String,
    ) -> Result<SyntheticContexts> {
        let contexts = SyntheticContexts {
            suffixes: SyntheticContext::suffixes(&state.schema)?,
            by_extensions: SyntheticContext::ALL
                .iter()
                .map(|_| Default::default())
                .collect(),
            following: Mutex::default(),
            opened,
        };
        // What is wrong with the schema is told now.
        for context in SyntheticContext::ALL {
            contexts.make(*context, root_dse, state, (&LocalConfig::default(), &[]))?;
        }
        Ok(contexts)
    }

    /// Makes a context in a state: once for all connections, or for each kind of them.
    fn make(
        &self,
        context: SyntheticContext,
        root_dse: &RootDse,
        state: &State,
        (local, conflicts): (&LocalConfig, &[LostChange]),
    ) -> Result<Vec<Arc<Context>>> {
        let schema = &state.schema;
        let contents = (context.definition().make)(&Server {
            schema,
            root_dse,
            state,
            opened: &self.opened,
            local,
            conflicts,
        });
        let made = contents.into_iter();
        made.map(|contents| Context::new(schema, context, contents).map(Arc::new))
            .collect()
    }

    /// The context that a DN is in, whether an entry has it or not.
    pub(crate) fn of(&self, normal: &NormalDn) -> Option<SyntheticContext> {
        let top = normal.rdns().next().unwrap_or_default();
        let at = self
            .suffixes
            .iter()
            .position(|suffix| suffix.bytes() == top)?;
        SyntheticContext::ALL.get(at).copied()
    }

    /// A context as it is on a kind of connection, in a state of the directory. The conflict log is read if it is asked
    /// for.
    ///
    /// # Errors
    /// As [`SyntheticContexts::new`], and as `conflicts`.
    pub(crate) fn get(
        &self,
        context: SyntheticContext,
        channel: Channel,
        root_dse: &RootDse,
        state: &Arc<State>,
        conflicts: impl FnOnce() -> Result<Vec<LostChange>>,
    ) -> Result<Arc<Context>> {
        let follows = context.definition().follows;
        let missing = || Error::State(format!("{} was not made", context.what()));
        if follows == Follows::Conflicts {
            let local = LocalConfig::default();
            let made = self.make(context, root_dse, state, (&local, &conflicts()?))?;
            return made.into_iter().next().ok_or_else(missing);
        }
        if follows == Follows::Extensions {
            let set = offered(state);
            let known = self
                .by_extensions
                .get(context as usize)
                .and_then(|sets| sets.get(set));
            let known = known.ok_or_else(missing)?;
            let made = match known.get() {
                Some(made) => made,
                None => {
                    let local = LocalConfig::default();
                    let made = self.make(context, root_dse, state, (&local, &[]))?;
                    known.get_or_init(|| made)
                }
            };
            let made = made.get(channel.kind()).or(made.first());
            return made.cloned().ok_or_else(missing);
        }
        let mut following = self
            .following
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut known = following.made.iter();
        let is_of = |of: &Arc<State>| follows.is_good(of, state);
        if let Some((.., made)) = known.find(|(which, of, _)| *which == context && is_of(of)) {
            return Ok(made.clone());
        }
        let made = self.make(context, root_dse, state, (&following.local, &[]))?;
        let made = made.into_iter().next().ok_or_else(missing)?;
        following.made.retain(|(which, ..)| *which != context);
        following.made.push((context, state.clone(), made.clone()));
        Ok(made)
    }

    /// Sets what is configured with the server.
    pub(crate) fn set_local(&self, local: LocalConfig) {
        let mut following = self
            .following
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *following = Following {
            local,
            made: Vec::new(),
        };
    }
}
