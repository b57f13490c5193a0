//! Sets as they are written (`set=`); what they mean, [`crate::access`] says.

/// An expression, with attributes of type `A` and with texts in brackets of type `T`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetOf<A, T> {
    pub(crate) first: PartOf<A, T>,
    pub(crate) rest: Vec<(Join, PartOf<A, T>)>,
}

/// A part of one, and what is done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartOf<A, T> {
    pub(crate) origin: OriginOf<A, T>,
    pub(crate) steps: Vec<StepOf<A>>,
}

/// Where a part begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OriginOf<A, T> {
    This,
    User,
    Text(T),
    Set(Box<SetOf<A, T>>),
}

/// A step from names to names or values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StepOf<A> {
    /// The values of an attribute; with `closure` also of the entries that these name, and so on.
    Values { attribute: A, closure: bool },
    /// The name so many above, or all of them.
    Above(Option<u32>),
}

/// How two sets become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    Union,
    Intersection,
    Concatenation,
}

/// An expression as it is written.
pub(crate) type WrittenSet = SetOf<String, String>;

impl<A, T> SetOf<A, T> {
    /// Its parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &PartOf<A, T>> {
        let rest = self.rest.iter().map(|(_, part)| part);
        std::iter::once(&self.first).chain(rest)
    }

    /// The same with other attributes and texts.
    pub(crate) fn try_map<B, U>(
        self,
        attribute: &impl Fn(A) -> std::result::Result<B, String>,
        text: &impl Fn(T) -> std::result::Result<U, String>,
    ) -> std::result::Result<SetOf<B, U>, String> {
        let rest = self.rest.into_iter();
        let rest = rest.map(|(join, part)| Ok((join, part.try_map(attribute, text)?)));
        Ok(SetOf {
            first: self.first.try_map(attribute, text)?,
            rest: rest.collect::<std::result::Result<_, String>>()?,
        })
    }
}

impl<A, T> OriginOf<A, T> {
    /// Whether its texts may be joined of others.
    pub(crate) fn is_joined(&self) -> bool {
        let OriginOf::Set(set) = self else {
            return false;
        };
        let joins = |(join, _): &(Join, _)| *join == Join::Concatenation;
        set.rest.iter().any(joins) || set.parts().any(|part| part.origin.is_joined())
    }
}

impl<A, T> PartOf<A, T> {
    fn try_map<B, U>(
        self,
        attribute: &impl Fn(A) -> std::result::Result<B, String>,
        text: &impl Fn(T) -> std::result::Result<U, String>,
    ) -> std::result::Result<PartOf<B, U>, String> {
        let steps = self.steps.into_iter().map(|step| {
            Ok(match step {
                StepOf::Values {
                    attribute: name,
                    closure,
                } => StepOf::Values {
                    attribute: attribute(name)?,
                    closure,
                },
                StepOf::Above(levels) => StepOf::Above(levels),
            })
        });
        Ok(PartOf {
            origin: match self.origin {
                OriginOf::This => OriginOf::This,
                OriginOf::User => OriginOf::User,
                OriginOf::Text(inner) => OriginOf::Text(text(inner)?),
                OriginOf::Set(inner) => OriginOf::Set(Box::new(inner.try_map(attribute, text)?)),
            },
            steps: steps.collect::<std::result::Result<_, String>>()?,
        })
    }
}
