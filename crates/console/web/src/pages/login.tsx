// The login: a token, the browser's certificate, or a kubeconfig. Credentials are kept only for this tab.

import { useEffect, useRef, useState } from 'preact/hooks';
import { ANONYMOUS, hasCode, told, whoAmI } from '../api/client';
import type { Found } from '../api/kubeconfig';
import { logIn, logOut } from '../api/session';
import { Dialog } from '../ui/dialog';

/** Loaded only when somebody brings a kubeconfig. */
async function read(text: string): Promise<Found> {
  const { readKubeconfig } = await import('../yaml');
  return readKubeconfig(text);
}

export function LoginPage() {
  useEffect(() => {
    document.title = 'keelson';
  }, []);
  return (
    <main class="login" tabIndex={-1}>
      <img src="/console/assets/icon.svg" alt="" width="48" height="48" />
      <h1>
        keelson <small>{window.location.host}</small>
      </h1>
      <LoginForm />
    </main>
  );
}

/** Over the page of a user whose credentials have ended: what is on it stays, if it is the same user who logs in. */
export function LoginDialog({ why, username }: { why: string; username: string }) {
  return (
    <Dialog title="Log in again">
      <p role="alert">
        The server no longer takes your credentials: {why}.{' '}
        {username !== '' && `What you have written stays if you log in as ${username}.`}
      </p>
      <div class="login">
        <LoginForm />
      </div>
      <button type="button" class="quiet" onClick={logOut}>
        Log out, and throw away what is not saved
      </button>
    </Dialog>
  );
}

function LoginForm() {
  const [token, setToken] = useState('');
  const [problem, setProblem] = useState('');
  const [hint, setHint] = useState<Found | null>(null);
  const [busy, setBusy] = useState(false);
  const [over, setOver] = useState(false);
  const file = useRef<HTMLInputElement>(null);

  const enter = async (secret: string) => {
    setBusy(true);
    setProblem('');
    try {
      const user = await whoAmI(secret);
      if (user.username === ANONYMOUS) {
        setProblem('The browser showed no certificate that the server knows. Choose one when it asks, or use a token.');
      } else logIn({ token: secret }, user);
    } catch (error) {
      const isForAnonymous = secret === '' && (hasCode(error, 401) || hasCode(error, 403));
      if (isForAnonymous) setProblem('The browser showed no certificate that the server knows.');
      else setProblem(hasCode(error, 401) ? 'The server does not know this token, or it has expired.' : told(error));
    } finally {
      setBusy(false);
    }
  };
  const take = async (text: string) => {
    const found = await read(text);
    setHint(found);
    setProblem(found.kind === 'nothing' ? found.why : '');
    if (found.kind === 'token') await enter(found.token);
  };
  const takeFile = (list: FileList | null | undefined) => {
    const first = list?.[0];
    if (first !== undefined) void first.text().then(take);
  };
  return (
    <>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const text = token.trim();
          if (text.includes('\n') || text.startsWith('apiVersion')) void take(text);
          else if (text !== '') void enter(text);
        }}
      >
        <label for="token">Token, or the text of a kubeconfig</label>
        <textarea
          id="token"
          name="token"
          rows={3}
          spellcheck={false}
          autocomplete="off"
          class="secret"
          value={token}
          onInput={(event) => setToken(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === 'Enter' && !event.shiftKey && !token.includes('\n')) {
              event.preventDefault();
              event.currentTarget.form?.requestSubmit();
            }
          }}
        />
        <button type="submit" class="main" disabled={busy}>
          Log in
        </button>
      </form>
      <div
        class={`drop${over ? ' over' : ''}`}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          takeFile(event.dataTransfer?.files);
        }}
      >
        <p>Drop a kubeconfig here, or</p>
        <button type="button" onClick={() => file.current?.click()}>
          choose a file
        </button>
        <input
          ref={file}
          type="file"
          class="hidden"
          aria-label="kubeconfig"
          tabIndex={-1}
          onChange={(event) => takeFile(event.currentTarget.files)}
        />
      </div>
      <button type="button" disabled={busy} onClick={() => void enter('')}>
        Use a certificate of this browser
      </button>
      <div role="alert" class="login-problem">
        {problem !== '' && <p>{problem}</p>}
        {hint?.kind === 'certificate' && <CertificateHint user={hint.user} />}
      </div>
      <details open>
        <summary>Where do I get a token?</summary>
        <p>With the kubeconfig that the server wrote into its data directory, for an administrator:</p>
        <pre>{ADMINISTRATOR}</pre>
        <p>A token stays in the tabs of this browser that are open, and is forgotten when they are closed.</p>
      </details>
    </>
  );
}

const ADMINISTRATOR = `kubectl -n kube-system create serviceaccount console
kubectl create clusterrolebinding console \\
  --clusterrole=cluster-admin --serviceaccount=kube-system:console
kubectl -n kube-system create token console --duration=8h`;

const CERTIFICATE = `openssl pkcs12 -export -out keelson.p12 \\
  -in <(kubectl config view --minify --raw -o 'jsonpath={.users[0].user.client-certificate-data}' | base64 -d) \\
  -inkey <(kubectl config view --minify --raw -o 'jsonpath={.users[0].user.client-key-data}' | base64 -d)`;

function CertificateHint({ user }: { user: string }) {
  return (
    <>
      <p>
        This kubeconfig proves who {user === '' ? 'you are' : user} is by a certificate and its key, which a page can't
        use by itself. Either make a token with it (below), or import the certificate into the browser, open the console
        again and use the button above:
      </p>
      <pre>{CERTIFICATE}</pre>
    </>
  );
}
