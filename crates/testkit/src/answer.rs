//! What a test asks of an answer.

use std::fmt;

use sapwood_ldap::list::OctetStrings;
use sapwood_ldap::message::{Frame, Response, ResponseMessage, frame};
use sapwood_ldap::result::ResultCode;

/// A response, taken out of the buffer. Its `Debug` form, which is for the messages of failed tests, has all of it.
#[derive(Clone)]
pub struct Answer {
    /// The message ID of the request.
    pub id: u32,
    /// Whether it ends its operation.
    pub ends: bool,
    /// The result; success for what comes before it.
    pub code: ResultCode,
    /// What the result says to people.
    pub diagnostic: String,
    /// The name of the result's matchedDN.
    pub matched: String,
    /// The URIs of a search result reference, or of a referral.
    pub uris: Vec<String>,
    /// The DN of a search result entry.
    pub entry: Option<String>,
    /// The attributes of a search result entry.
    pub attributes: Vec<(String, Vec<Vec<u8>>)>,
    /// The name of an extended or intermediate response.
    pub name: Option<String>,
    /// The value of an extended or intermediate response.
    pub value: Option<Vec<u8>>,
    /// The response controls: their OIDs and values.
    pub controls: Vec<(String, Vec<u8>)>,
}

impl Answer {
    /// Copies a response out of its buffer.
    pub fn of(message: &ResponseMessage<'_>) -> Self {
        let result = message.op.result();
        let mut answer = Self {
            id: message.id,
            ends: result.is_some(),
            code: ResultCode::Success,
            diagnostic: String::new(),
            matched: String::new(),
            uris: Vec::new(),
            entry: None,
            attributes: Vec::new(),
            name: None,
            value: None,
            controls: message
                .controls
                .iter()
                .map(|control| {
                    let value = control.value.unwrap_or_default().to_vec();
                    (control.oid.to_owned(), value)
                })
                .collect(),
        };
        if let Some(result) = result {
            answer.code = result.code;
            answer.diagnostic = result.diagnostic.to_owned();
            answer.matched = result.matched_dn.to_owned();
            answer.uris = result.referral.map(texts).unwrap_or_default();
        }
        match message.op {
            Response::SearchEntry(entry) => {
                answer.entry = Some(entry.dn.to_owned());
                for attribute in entry.attributes {
                    let description = String::from_utf8(attribute.description.to_vec()).unwrap();
                    let values = attribute.values.iter().map(<[u8]>::to_vec).collect();
                    answer.attributes.push((description, values));
                }
            }
            Response::SearchReference(uris) => answer.uris = texts(uris),
            Response::Extended(extended) => {
                answer.name = extended.name.map(str::to_owned);
                answer.value = extended.value.map(<[u8]>::to_vec);
            }
            Response::Intermediate(response) => {
                answer.name = response.name.map(str::to_owned);
                answer.value = response.value.map(<[u8]>::to_vec);
            }
            _ => {}
        }
        answer
    }

    /// The responses in these bytes, which hold whole ones.
    #[track_caller]
    pub fn all(mut bytes: &[u8]) -> Vec<Self> {
        let mut answers = Vec::new();
        while let Ok(Frame::Complete(length)) = frame(bytes, usize::MAX) {
            answers.push(Self::of(
                &ResponseMessage::decode(&bytes[..length]).unwrap(),
            ));
            bytes = &bytes[length..];
        }
        assert!(bytes.is_empty(), "no whole response: {bytes:?}");
        answers
    }

    /// Fails unless this is the result.
    #[track_caller]
    pub fn expect(&self, code: ResultCode) -> &Self {
        assert!(self.ends && self.code == code, "not {code}, but {self:?}");
        self
    }

    /// Fails unless the operation has succeeded.
    #[track_caller]
    pub fn succeeded(&self) -> &Self {
        self.expect(ResultCode::Success)
    }

    /// Fails unless the operation has been refused with this code and a diagnostic that says `why`.
    #[track_caller]
    pub fn refused(&self, code: ResultCode, why: &str) -> &Self {
        self.expect(code);
        assert!(self.diagnostic.contains(why), "not {why:?}, but {self:?}");
        self
    }

    /// The values of an attribute of the entry, as text; none if it is not there.
    pub fn values(&self, description: &str) -> Vec<String> {
        self.attributes
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(description))
            .flat_map(|(_, values)| values)
            .map(|value| String::from_utf8(value.clone()).unwrap())
            .collect()
    }
}

fn texts(list: OctetStrings<'_>) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    list.iter().map(text).collect()
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {}:", self.id)?;
        if self.ends {
            write!(f, " {} {:?}", self.code, self.diagnostic)?;
        }
        if !self.matched.is_empty() {
            write!(f, ", matched {:?}", self.matched)?;
        }
        if !self.uris.is_empty() {
            write!(f, ", refers to {:?}", self.uris)?;
        }
        if let Some(name) = &self.name {
            write!(f, ", named {name}")?;
        }
        if let Some(value) = &self.value {
            write!(f, ", value \"{}\"", value.escape_ascii())?;
        }
        for (oid, value) in &self.controls {
            write!(f, ", control {oid} \"{}\"", value.escape_ascii())?;
        }
        if let Some(dn) = &self.entry {
            write!(f, " entry {dn:?}")?;
        }
        for (description, values) in &self.attributes {
            write!(f, "\n  {description}:")?;
            for value in values {
                write!(f, " \"{}\"", value.escape_ascii())?;
            }
        }
        Ok(())
    }
}
