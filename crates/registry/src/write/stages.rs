//! The stages of a proposal before its commit, in order: complete, own, mutating admission, normalize, convert,
//! prepare, associated writes, validate, validating admission, quotas.
//!
//! Fields that a kind derives from the sent object in `complete` belong to its writer. As upstream, fields set by
//! admission, preparation and associated writes get no owner.
//!
//! The stages before the conversion see the version of the request, the later ones the stored version. Admission sees
//! the version of the request both times. All stages run again after a conflict, so none may have side effects.

use std::borrow::Cow;

use keelson_cache::Entry;
use keelson_codec::stored::StoredObject;
use keelson_meta::field_error::FieldError;
use keelson_meta::names::generate_name;
use keelson_meta::{ApiError, Object};

use super::managed_fields::DetachedManagedFields;
use super::{Change, Live, ManagedObject, Ownership, Staged, Update, WriteRequest};
use crate::admission::{
    AdmissionAttributes, AttributesNeeded, Operation, Reinvocation, WriteOptions, none_inherent, reshape,
};
use crate::caller::Caller;
use crate::closed_fields::drop_closed;
use crate::companions::AssociatedWrites;
use crate::delete::judged_options;
use crate::intake::{check_type, fit};
use crate::managed;
use crate::owners::{DuplicateCause, leave_out_repeated};
use crate::prepare::{
    asks_for_more, carry_over, check_new, refuse_unconverted, schema_faults, stamp_new, validate_update,
};
use crate::quota::ChargedWrite;
use crate::registry::Registry;
use crate::rights;
use crate::subresources::{self, scale};
use crate::surface::refused;
use crate::target::Target;
use crate::versions::{convert, convert_both};

/// Refuses a PUT or an apply that would create the object, for a caller that may only update or patch it. The endpoint
/// was authorized for its own verb. Only here it is known that the object is created. As upstream, this requires the
/// right to create an object of this name.
///
/// # Errors
/// 403.
async fn refuse_creation_by_others(request: &WriteRequest<'_>) -> Result<(), ApiError> {
    if !matches!(request.options, WriteOptions::Update(_) | WriteOptions::Patch(_)) {
        return Ok(());
    }
    rights::require(request.caller, rights::attributes(request.target, "create", Some(request.name))).await
}

/// One pass of a proposal through the stages.
struct StagePass<'w> {
    request: &'w WriteRequest<'w>,
    /// The object for which it was proposed.
    live: Option<&'w Entry>,
    /// The number of conflicts of its associated writes so far.
    choices: usize,
}

impl Registry {
    /// Runs the stages for an object that is `live`, after `choices` conflicts of its associated writes.
    ///
    /// # Errors
    /// The error of a stage.
    pub(super) async fn take_through_stages(
        &self,
        request: &WriteRequest<'_>,
        live: Option<&Entry>,
        proposed: Update,
        choices: usize,
    ) -> Result<Staged, ApiError> {
        let passage = StagePass { request, live, choices };
        let mut staged = self.pass(&passage, proposed).await?;
        if let Change::Remove(last) = &staged.change
            && let Some(again) = request.target.strategy().delete.made_again(self, last).await?
        {
            staged.change = Change::Put(again);
        }
        Ok(staged)
    }

    async fn pass(&self, passage: &StagePass<'_>, proposed: Update) -> Result<Staged, ApiError> {
        let StagePass { request, live, .. } = *passage;
        match proposed {
            Update::New(object, ownership) => self.stages_of_new(passage, object, ownership).await,
            Update::Content { live, next, ownership } => self.stages_of_content(passage, live, next, ownership).await,
            Update::Change(change, operation) => {
                let change = match operation {
                    Some(operation) => self.admit_own_change(request, operation, live, change).await?,
                    None => change,
                };
                self.accompany_own_change(passage, change).await
            }
        }
    }

    /// Collects the associated writes of a change by the server itself: allocations of a put, or releases of a
    /// deletion.
    async fn accompany_own_change(&self, passage: &StagePass<'_>, mut change: Change) -> Result<Staged, ApiError> {
        let companions = match &mut change {
            Change::Keep(..) => AssociatedWrites::default(),
            Change::Remove(_) => self.take_companions(passage, None).await?,
            Change::Create { new: next, .. } | Change::Put(next) => {
                next.is_canonical &= !passage.request.target.strategy().write.has_companions();
                self.take_companions(passage, Some(&mut next.object)).await?
            }
        };
        Ok(Staged { change, companions })
    }

    /// Collects the associated writes of an object (`None`: it is deleted), and sets allocated fields in it.
    async fn take_companions(
        &self,
        passage: &StagePass<'_>,
        after: Option<&mut Object>,
    ) -> Result<AssociatedWrites, ApiError> {
        self.accompany(passage.request.target, passage.live, after, passage.choices).await
    }

    /// The admission of a new object by its kind. It changes nothing if it refuses the object. Another server may have
    /// created the object that the refusal misses a moment ago, such as a priority class.
    async fn admit_by_kind(&self, target: &Target, object: &mut Object) -> Result<bool, ApiError> {
        let admission = target.strategy().create;
        match admission.admit(self, target, object) {
            Err(ApiError::Refused { .. }) => {}
            done => return done,
        }
        self.catch_up().await?;
        admission.admit(self, target, object)
    }

    async fn stages_of_new(
        &self,
        passage: &StagePass<'_>,
        mut object: Object,
        ownership: Ownership,
    ) -> Result<Staged, ApiError> {
        let request = passage.request;
        let (target, caller) = (request.target, request.caller);
        // Complete, own.
        let has_repeated = leave_out_repeated(&mut object, DuplicateCause::Request, caller.warnings());
        let (mut managed_fields, mut is_changed) = self.complete_new(target, &mut object, ownership, caller).await?;
        is_changed |= has_repeated;
        // Mutating admission. The object has no uid yet, and no generated name.
        self.provide_namespace(target, name_or_base(&object), caller).await?;
        let guards = self.guards(target, name_or_base(&object)).await?;
        refuse_where_nothing_is_new(target, &object)?;
        is_changed |= self.admit_by_kind(target, &mut object).await?;
        let reinvocation = Reinvocation::default();
        let attributes = AdmissionAttributes::new(self, request, Operation::Create, &reinvocation);
        let interest = self.admission().interest(&attributes);
        if interest > AttributesNeeded::None {
            self.admit_changes(&attributes, interest, &mut object, &mut managed_fields).await?;
            is_changed |= leave_out_repeated(&mut object, DuplicateCause::Admission, caller.warnings());
        }
        // Convert, prepare. The schema of the request's version is checked before, and its errors are reported with the
        // others.
        self.prepare_for_schema(target, &mut object);
        let faults = schema_faults(target, None, &mut object, caller.warnings());
        let faults = refuse_unconverted(target, &object, faults)?;
        let mut object = self.to_storage(target, object).await?;
        is_changed |= self.prepare_new(target, &mut object, caller);
        // Associated writes.
        let mut companions = self.take_companions(passage, Some(&mut object)).await?;
        // Validate.
        check_new(self, target, &object, faults, caller)?;
        self.check_grant(request, None, &object).await?;
        refuse_creation_by_others(request).await?;
        // Validating admission.
        let mut new = ManagedObject { object, managed_fields, is_canonical: !is_changed };
        if interest > AttributesNeeded::None {
            let shown = shown_for_judgement(target, &new, None, interest).await?;
            self.admission().validate(&attributes.making(&shown), Some(&shown)).await?;
            new.is_canonical &= !reinvocation.set_marks(&mut new.object);
        }
        // Quotas.
        companions.charge(self.charges(ChargedWrite::new(target, None, &new.object)).await?);
        Ok(Staged { change: Change::Create { new, guards }, companions })
    }

    /// Runs admission once more for a new object that has passed its stages, since the basis of its decision has
    /// changed.
    ///
    /// # Errors
    /// The refusal.
    pub(super) async fn admit_again(&self, request: &WriteRequest<'_>, new: &ManagedObject) -> Result<(), ApiError> {
        let reinvocation = Reinvocation::default();
        let attributes = AdmissionAttributes::new(self, request, Operation::Create, &reinvocation);
        let interest = self.admission().interest(&attributes);
        if interest == AttributesNeeded::None {
            return Ok(());
        }
        let shown = shown_for_judgement(request.target, new, None, interest).await?;
        self.admission().validate(&attributes.making(&shown), Some(&shown)).await
    }

    /// Completes an object that was `live` before. Returns true if a field was added.
    fn complete_content(
        &self,
        request: &WriteRequest<'_>,
        live: &Object,
        next: Object,
    ) -> Result<(Object, bool), ApiError> {
        let (target, now) = (request.target, self.now());
        let (mut next, mut is_changed) = subresources::confine(target, live, next, now)?;
        is_changed |= target.strategy().update.complete_update(live, &mut next, now);
        if matches!(request.options, WriteOptions::Update(_)) {
            is_changed |= leave_out_repeated(&mut next, DuplicateCause::Request, request.caller.warnings());
        }
        Ok((next, is_changed))
    }

    async fn stages_of_content(
        &self,
        passage: &StagePass<'_>,
        mut live: Live,
        next: Object,
        ownership: Ownership,
    ) -> Result<Staged, ApiError> {
        // SIZE: the stages of an update, in their order.
        let request = passage.request;
        let (target, caller, strategy) = (request.target, request.caller, request.target.strategy());
        // Complete.
        let (mut next, mut is_changed) = self.complete_content(request, &live.object, next)?;
        // Own.
        let mut managed_fields = match ownership {
            Ownership::Known(managed_fields) => managed_fields,
            Ownership::Track => {
                let (object, known) = (&mut live.object, live.managed_fields.as_deref());
                managed::track(target, object, &mut next, known, caller, self.now()).await?
            }
        };
        // Mutating admission.
        is_changed |= strategy.update.admit_update(self, target, &live.object, &mut next)?;
        let reinvocation = Reinvocation::default();
        let asked = AdmissionAttributes::new(self, request, Operation::Update, &reinvocation);
        let interest = self.admission().interest(&asked);
        let old = old_for_admission(target, &live, interest);
        if interest > AttributesNeeded::None {
            let attributes = asked.from(Some(old.as_ref().unwrap_or(&live.object)));
            self.admit_changes(&attributes, interest, &mut next, &mut managed_fields).await?;
        }
        is_changed |= leave_out_repeated(&mut next, DuplicateCause::Admission, caller.warnings());
        // Parts that an endpoint does not change are not validated.
        if target.version.structural().is_some() {
            let (confined, is_added) = managed::confine(target, &live.object, next);
            (next, is_changed) = (confined, is_changed || is_added);
        }
        // Convert. As upstream, the generation of a custom resource counts changes in the version of the request.
        let faults = schema_faults(target, Some(&mut live.object), &mut next, caller.warnings());
        let faults = refuse_unconverted(target, &next, faults)?;
        let counts = target.is_converted().then(|| asks_for_more(target, &live.object, &next));
        let (stored, next) = self.both_as_stored(target, &live.object, next).await?;
        // Prepare. Fields set by admission are no change, so the generation is counted after it.
        let (mut next, is_added) = managed::confine(target, &stored, next);
        is_changed |= is_added;
        strategy.update.check_subresource(target, &next)?;
        // ORDER: before the generation is counted, since a dropped field is no change.
        drop_closed(target, Some(&stored), &mut next);
        let counts = counts.unwrap_or_else(|| asks_for_more(target, &stored, &next));
        let carried = carry_over(&stored, &mut next, counts);
        is_changed |= strategy.update.prepare_update(target, &stored, &mut next);
        is_changed |= strategy.update.date_update(target, &stored, &mut next, self.now());
        // Associated writes.
        let goes =
            stored.deletion_timestamp().is_some() && next.finalizers().is_empty() && strategy.delete.may_go(&next);
        let mut companions = self.take_companions(passage, if goes { None } else { Some(&mut next) }).await?;
        // Validate.
        let faults = self.with_unauthorized(request, (&stored, &next), faults).await?;
        validate_update(target, (&stored, &next), carried, faults, caller.warnings())?;
        self.check_grant(request, Some(&stored), &next).await?;
        let managed_fields = managed::keep_times(&stored, live.managed_fields.as_deref(), &mut next, managed_fields);
        // Validating admission.
        let mut next = ManagedObject { object: next, managed_fields, is_canonical: !is_changed };
        if interest > AttributesNeeded::None {
            let attributes = asked.from(Some(old.as_ref().unwrap_or(&stored)));
            let shown = shown_for_judgement(target, &next, attributes.old, interest).await?;
            self.admission().validate(&attributes, Some(&shown)).await?;
            next.is_canonical &= !reinvocation.set_marks(&mut next.object);
        }
        if !goes {
            companions.charge(self.charges(ChargedWrite::new(target, Some(&stored), &next.object)).await?);
        }
        let change = if goes { Change::Remove(next.encode(target).into_object()) } else { Change::Put(next) };
        Ok(Staged { change, companions })
    }

    /// Refuses rights in a valid object that the caller itself does not have.
    async fn check_grant(
        &self,
        request: &WriteRequest<'_>,
        before: Option<&Object>,
        after: &Object,
    ) -> Result<(), ApiError> {
        let strategy = request.target.strategy();
        if strategy.write.grants_rights() {
            strategy.write.check_grant(self, request, before, after).await
        } else {
            Ok(())
        }
    }

    /// The faults of an update, with the changes that the caller has no right to make.
    async fn with_unauthorized(
        &self,
        request: &WriteRequest<'_>,
        (before, after): (&Object, &Object),
        faults: Vec<FieldError>,
    ) -> Result<Vec<FieldError>, ApiError> {
        let (target, strategy) = (request.target, request.target.strategy());
        if !strategy.update.restricts_changes(target.subresource_name().unwrap_or_default()) {
            return Ok(faults);
        }
        let mut unauthorized = strategy.update.unauthorized_changes(self, request, before, after).await?;
        unauthorized.extend(faults);
        Ok(unauthorized)
    }

    /// Runs the stages for an object that the server itself creates, and returns its stored form. The object must be
    /// valid: errors are not reported, and admission does not run.
    ///
    /// # Errors
    /// 400 if the object does not fit its kind.
    pub async fn encode_own(&self, target: &Target, object: Object) -> Result<StoredObject, ApiError> {
        Ok(self.make_own(target, object).await?.encode(target).into_object())
    }

    /// As [`Registry::encode_own`], without the encoding.
    ///
    /// # Errors
    /// As [`Registry::encode_own`].
    pub async fn make_own(&self, target: &Target, mut object: Object) -> Result<ManagedObject, ApiError> {
        let caller = Caller::server();
        object.set_type(target.kind());
        fit(target, &mut object)?;
        let (managed_fields, _) = self.complete_new(target, &mut object, Ownership::Track, &caller).await?;
        let mut object = self.to_storage(target, object).await?;
        self.prepare_new(target, &mut object, &caller);
        Ok(ManagedObject::new(object, managed_fields))
    }

    /// Completes a new object and computes its owners. Returns the owners as text, and true if the kind changed the
    /// object.
    async fn complete_new(
        &self,
        target: &Target,
        object: &mut Object,
        ownership: Ownership,
        caller: &Caller,
    ) -> Result<(Option<String>, bool), ApiError> {
        let is_changed = target.strategy().create.complete_new(object, self.now());
        let managed_fields = match ownership {
            Ownership::Known(managed_fields) => managed_fields,
            Ownership::Track => managed::track_new(target, object, caller, self.now()).await?,
        };
        Ok((managed_fields, is_changed))
    }

    /// Prepares a new object for its schema: generates its name if necessary, and removes a status that only an
    /// endpoint of its own may write.
    fn prepare_for_schema(&self, target: &Target, object: &mut Object) {
        if object.name().is_empty() && !object.generate_name().is_empty() {
            let name = generate_name(object.generate_name(), &*self.random);
            object.set_meta("name", name);
        }
        if target.version.structural().is_some() && target.parts_status() {
            object.0.remove("status");
        }
    }

    /// Sets the fields of a new object that only the server may set. The object is in the stored version. Returns true
    /// if the kind changed it, too.
    fn prepare_new(&self, target: &Target, object: &mut Object, caller: &Caller) -> bool {
        let strategy = target.strategy();
        let mut is_changed = strategy.create.attribute(object, caller.user());
        stamp_new(self, target, object, caller);
        drop_closed(target, None, object);
        is_changed |= strategy.create.prepare_create(object, caller.warnings());
        is_changed
    }

    /// Converts the old and the new object from the request's version to the stored one, which is nearly always the
    /// same. A webhook is called once.
    async fn both_as_stored<'o>(
        &self,
        target: &Target,
        live: &'o Object,
        next: Object,
    ) -> Result<(Cow<'o, Object>, Object), ApiError> {
        let kind = target.storage_kind();
        if target.resource.converter().is_none() || target.kind() == kind {
            let mut stored = Cow::Borrowed(live);
            if target.kind() != kind {
                convert(target, stored.to_mut(), kind).await?;
            }
            return Ok((stored, self.to_storage(target, next).await?));
        }
        let both = convert_both(target, &[live.clone(), next], kind).await?;
        let mut both = both.into_iter();
        let lost = || ApiError::Internal("two objects were converted to fewer".to_owned());
        let (stored, mut next) = (both.next().ok_or_else(lost)?, both.next().ok_or_else(lost)?);
        self.canonical(target, &mut next)?;
        Ok((Cow::Owned(stored), next))
    }

    /// Runs mutating admission. An object that a plugin changed is normalized before the next one sees it.
    async fn admit_changes(
        &self,
        attributes: &AdmissionAttributes<'_>,
        interest: AttributesNeeded,
        object: &mut Object,
        managed_fields: &mut Option<String>,
    ) -> Result<(), ApiError> {
        let target = attributes.target;
        if let Some(mut scale) = scale::shown_to_admission(target, object) {
            let kind = target.taken_kind();
            let fit = |scale: &mut Object| reshape(target, &kind, scale);
            if self.admission().mutate(attributes, Some(&mut scale), fit, none_inherent).await? {
                scale::rescale(target, &scale, object)?;
            }
            return Ok(());
        }
        let lent =
            (interest == AttributesNeeded::Whole).then(|| DetachedManagedFields::to(object, managed_fields.take()));
        let fit = |object: &mut Object| {
            check_type(target, object)?;
            reshape(target, target.kind(), object)
        };
        let inherent = |object: &mut Object| match attributes.old {
            Some(old) => target.strategy().update.admit_update(self, target, old, object),
            None => target.strategy().create.admit(self, target, object),
        };
        self.admission().mutate(attributes, Some(object), fit, inherent).await?;
        if let Some(lent) = lent {
            *managed_fields = lent.take_back(object, attributes.caller.warnings());
        }
        Ok(())
    }

    /// Runs admission for a change that the server itself makes to an object that is `live`.
    async fn admit_own_change(
        &self,
        request: &WriteRequest<'_>,
        operation: Operation,
        live: Option<&Entry>,
        mut change: Change,
    ) -> Result<Change, ApiError> {
        let (admission, target) = (self.admission(), request.target);
        let reinvocation = Reinvocation::default();
        let asked = AdmissionAttributes::new(self, request, operation, &reinvocation);
        let interest = admission.interest(&asked);
        if interest == AttributesNeeded::None {
            return Ok(change);
        }
        let old = match live {
            Some(live) => Some(Live::in_version_of(target, live).await?.with_managed_fields()),
            None => None,
        };
        let attributes = asked.from(old.as_ref());
        let next = match &mut change {
            Change::Put(next) if operation != Operation::Delete => Some(next),
            _ => None,
        };
        let Some(next) = next else {
            admission.mutate(&attributes, None, |_| Ok(()), none_inherent).await?;
            self.judge_deletion(attributes).await?;
            return Ok(change);
        };
        convert(target, &mut next.object, target.kind()).await?;
        self.admit_changes(&attributes, interest, &mut next.object, &mut next.managed_fields).await?;
        next.object = self.to_storage(target, std::mem::take(&mut next.object)).await?;
        next.is_canonical = false;
        let shown = shown_for_judgement(target, next, attributes.old, interest).await?;
        admission.validate(&attributes, Some(&shown)).await?;
        Ok(change)
    }

    /// Runs validating admission for a deletion, with its effective options.
    async fn judge_deletion(&self, attributes: AdmissionAttributes<'_>) -> Result<(), ApiError> {
        let (WriteOptions::Delete(stated), Some(old)) = (attributes.options, attributes.old) else {
            return self.admission().validate(&attributes, None).await;
        };
        let Some(options) = judged_options(attributes.target, old, stated) else { return Ok(()) };
        let attributes = AdmissionAttributes { options: WriteOptions::Delete(&options), ..attributes };
        self.admission().validate(&attributes, None).await
    }
}

/// The old object for admission; `None` if admission can use the stored object itself.
fn old_for_admission(target: &Target, live: &Live, interest: AttributesNeeded) -> Option<Object> {
    if interest == AttributesNeeded::None || interest == AttributesNeeded::Object && is_shown_as_stored(target) {
        return None;
    }
    let old = live.with_managed_fields();
    Some(scale::shown_to_admission(target, &old).unwrap_or(old))
}

/// Returns true if the objects of an endpoint equal the stored ones.
fn is_shown_as_stored(target: &Target) -> bool {
    target.kind() == target.storage_kind() && target.taken_kind() == *target.kind()
}

/// The object for validating admission, in the version of the request, like the `old` one. For a scale, the scale.
///
/// # Errors
/// 500 if the object cannot be converted.
async fn shown_for_judgement<'o>(
    target: &Target,
    next: &'o ManagedObject,
    old: Option<&Object>,
    interest: AttributesNeeded,
) -> Result<Cow<'o, Object>, ApiError> {
    if interest == AttributesNeeded::Object && is_shown_as_stored(target) {
        return Ok(Cow::Borrowed(&next.object));
    }
    let mut shown = next.with_managed_fields();
    convert(target, &mut shown, target.kind()).await?;
    // As upstream, this is the resourceVersion of the old object, whatever was sent.
    if let Some(old) = old.filter(|old| !old.resource_version().is_empty()) {
        shown.set_meta("resourceVersion", old.resource_version());
    }
    Ok(Cow::Owned(scale::shown_to_admission(target, &shown).unwrap_or(shown)))
}

/// Refuses a new object of a resource that accepts none, such as one whose definition is being deleted.
///
/// # Errors
/// 403 with the reason.
fn refuse_where_nothing_is_new(target: &Target, object: &Object) -> Result<(), ApiError> {
    match target.resource.refuses_new() {
        None => Ok(()),
        Some(why) => Err(refused(target, object.name(), why)),
    }
}

/// The name of an object, or the base of its generated name.
fn name_or_base(object: &Object) -> &str {
    if object.name().is_empty() { object.generate_name() } else { object.name() }
}
