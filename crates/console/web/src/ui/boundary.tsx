// An error boundary around a page: an exception is shown in its place, and other pages still work.

import { Component, type ComponentChildren } from 'preact';
import type { Place } from '../state/router';
import { Problem } from './problem';

interface Props {
  /** Another one is another page, or the same tried again. */
  place: Place;
  children: ComponentChildren;
}

interface State {
  place: Place | null;
  fault: { error: unknown } | null;
}

export class Boundary extends Component<Props, State> {
  override state: State = { place: null, fault: null };

  static override getDerivedStateFromProps({ place }: Props, state: State): State | null {
    return state.place === place ? null : { place, fault: null };
  }

  static override getDerivedStateFromError(error: unknown): Partial<State> {
    return { fault: { error } };
  }

  override render({ children }: Props, { fault }: State) {
    return fault === null ? children : <Problem error={fault.error} />;
  }
}
