//! The status of a definition: its names, and the conditions for established, approved, and non-structural schemas
//! stored by an older server.
//!
//! Every server handles every changed definition and writes the missing parts. The slower ones get a conflict. As in
//! upstream, a definition is established in two steps: it is served after its names are accepted, and established after
//! it is served.

use keelson_controllers::{Outcome, RevisedObject};
use keelson_meta::json::json;
use keelson_meta::{ApiError, Object, field_error};
use keelson_schema::NonStructural;
use keelson_supervision::{outcome, spawn_blocking, warn_repeated};

use crate::approval;
use crate::conditions::{self, Condition, ESTABLISHED, NON_STRUCTURAL};
use crate::extensions::{Extensions, KnownDefinition, SchemaCheck};
use crate::names::Verdict;

/// The definition, and the condition for non-structural schemas. Large schemas take longer to check than a request may
/// block a thread.
async fn checked(known: &KnownDefinition, schema_check: SchemaCheck) -> (Object, Option<Condition>) {
    let entry = known.entry.clone();
    let checking = spawn_blocking(move || {
        let definition = entry.object().decode(entry.revision);
        let condition = schema_check(&definition).map(|found| match found {
            NonStructural::NoForm(why) => Condition::unknown(NON_STRUCTURAL, "StructuralError", why),
            NonStructural::Violations(faults) => {
                Condition::new(NON_STRUCTURAL, true, "Violations", field_error::join(&faults))
            }
        });
        (definition, condition)
    });
    outcome(checking).await
}

impl Extensions {
    /// Writes the status of a definition.
    pub(crate) async fn tell(&self, name: String) -> Outcome {
        match self.judge(&name).await {
            Ok(()) | Err(ApiError::NotFound { .. }) => Outcome::Done,
            // Another server changed the definition. Its new state is handled next.
            Err(ApiError::Conflict { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(&name; definition = name, %error, "writing the status of a definition failed; retrying");
                Outcome::Again
            }
        }
    }

    async fn judge(&self, name: &str) -> Result<(), ApiError> {
        let Some(known) = self.known(name).filter(|known| !known.read.terminating) else { return Ok(()) };
        let is_served = self.serving.serves(&known.read).await;
        let verdict = self.with_names(|names| (names.judge(&known.read), Vec::new()));
        let (mut next, schemas) = checked(&known, self.schema_check).await;
        let is_changed = self.say(&known, &verdict, is_served, &mut next);
        let is_changed = match &schemas {
            Some(condition) => conditions::set(&mut next, condition, self.client.now()),
            None => conditions::remove(&mut next, NON_STRUCTURAL),
        } || is_changed;
        let written = if is_changed { Some(self.update_status(next).await) } else { None };
        let revision = written.as_ref().and_then(|written| written.as_ref().ok()).map(|stored| stored.revision);
        self.with_names(|names| ((), names.settle(name, revision)));
        written.transpose().map(|_| ())
    }

    /// Sets the decision in the status. Returns true if anything changed.
    fn say(&self, known: &KnownDefinition, verdict: &Verdict, is_served: bool, next: &mut Object) -> bool {
        let (now, definition) = (self.client.now(), &known.read);
        let mut is_changed = definition.accepted != verdict.accepted;
        if is_changed {
            let status = next.0.entry("status").or_insert_with(|| json!({}));
            status["acceptedNames"] = verdict.accepted.write();
        }
        is_changed |= conditions::set(next, &verdict.condition, now);
        if !definition.established {
            let stands = definition.names_accepted && definition.accepted == verdict.accepted;
            let accepted = "the initial names have been accepted";
            let established = match verdict.condition.holds {
                true if stands && is_served => Condition::new(ESTABLISHED, true, "InitialNamesAccepted", accepted),
                true => Condition::new(ESTABLISHED, false, "Installing", accepted),
                false => Condition::new(ESTABLISHED, false, "NotAccepted", "not all names are accepted"),
            };
            is_changed |= conditions::set(next, &established, now);
        }
        if let Some(approval) = approval::condition(next) {
            is_changed |= conditions::set(next, &approval, now);
        }
        is_changed
    }

    /// Writes the status of a definition, unless it changed since it was read.
    ///
    /// # Errors
    /// 409 if it changed.
    pub(crate) async fn update_status(&self, definition: Object) -> Result<RevisedObject, ApiError> {
        let status = self.definitions.clone().below("status").named(definition.name());
        Ok(self.client.update(&status, definition).await?.read())
    }
}
