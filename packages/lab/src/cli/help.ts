import { MIN_SECONDS } from '../conformance/run-conformance.js';
import { ownVersion } from '../campaign/environment.js';
import { CONGESTION_CONTROLS } from '../campaign/plan.js';
import { MAX_SEED } from '../campaign/seed.js';

export const HELP = `pronghorn-lab ${ownVersion()}: loads pages in Chromium over HTTP/1.1, HTTP/2 and HTTP/3 through an emulated link, and compares the loads.

usage:
  pronghorn-lab run PLAN.toml [--out DIR] [--resume] [--seed N] [--profile NAME]... [--pronghorn PATH] [--chromium PATH]
                     [--watch-all] [--fail-if CONDITION]... [--wait] [--share-machine]
  pronghorn-lab page SPEC.toml --out DIR
  pronghorn-lab capture URL --out DIR [--wait-ms N] [--timeout SECONDS] [--resolve HOST=ADDR[:PORT]]... [--spki HASH]
                        [--insecure-certificate] [--keep-cookies] [--allow-status CODE] [--chromium PATH]
  pronghorn-lab capture --har FILE --out DIR [--keep-cookies] [--allow-status CODE]
  pronghorn-lab report DIR... [--fail-if CONDITION]...
  pronghorn-lab har DIR LOAD
  pronghorn-lab reproduce kiwee|cloudflare|tencent [--out DIR] [--resume] [--blocks N] [and the options of run]
  pronghorn-lab conformance [--congestion NAMES] [--repeats N] [--seconds N] [--out DIR] [--seed N] [--pronghorn PATH]
                     [--wait] [--share-machine]

run      runs a plan's campaign; writes samples, tables and a report to DIR (default: lab-results/NAME-TIME)
page     generates a page from a specification
capture  records a page for \`pronghorn replay\`, by loading it in Chromium or from a HAR file with content
report   rebuilds the tables and the report from the samples in DIR; pools the A/A controls of several folders
har      writes one load of a campaign, by number, to stdout as HAR 1.2
reproduce  runs the campaign of a published study against criteria that are fixed before the first load, and prints
           the published next to the measured figures with a verdict for each criterion
conformance  compares each congestion controller over TCP with the same one over QUIC, on a fixed link

  --out DIR         output folder; must not exist or must be empty
  --resume          continue the interrupted or killed campaign in DIR
  --profile NAME    run only this link profile of the plan; repeatable
  --blocks N        number of blocks, instead of the study's 50
  --congestion A,B  controllers to check: ${CONGESTION_CONTROLS.join(', ')} (default: all)
  --repeats N       transfers per controller and protocol (default: 3)
  --seconds N       duration of a transfer (default: 10, minimum: ${MIN_SECONDS})
  --seed N          seed, 0 to ${MAX_SEED} (default: the plan's)
  --pronghorn PATH  the pronghorn program (default: $PRONGHORN, target/release/pronghorn, then the PATH)
  --chromium PATH   the browser (default: $CHROMIUM, Debian's path, then the PATH)
  --watch-all       record a NetLog and screenshots of every load, not only of the rehearsal; slows the loads
  --fail-if COND    exit with code 4 if the condition holds, such as 'h3.median > 1.1 * h2.median' or
                    'surely h3.firstByte.p90 > 300 ms on lte'; repeatable
  --wait            wait while another campaign measures on this machineinstead of exiting with code 75
  --share-machine   run beside other campaigns that were given this option too; the report says so;
                    PRONGHORN_LAB_SHARE_MACHINE=1 does the same
  --wait-ms N       how long to keep recording after the load event (2000), and then for requests in flight
  --timeout SECONDS how long to wait for the load event (60)
  --resolve HOST=ADDR[:PORT]  connect to ADDR for HOST instead of asking DNS; repeatable; HOST may be *
  --spki HASH       accept certificates whose public key has this SHA-256 hash, in base64
  --insecure-certificate  accept any certificate
  --keep-cookies    also record cookies, authorization fields and posted forms, which are removed by default
  --allow-status CODE  record a document with this status, which is an error by default
  --har FILE        read a HAR file with content instead of loading a URL
  --help, --version

Tables go to stdout, progress and errors to stderr.

exit codes:
  0    success (invalid or incomplete loads are in the table)
  1    internal error: a bug in pronghorn-lab
  2    invalid command line
  3    finished, but an arm has no valid, completed load
  4    finished, but a --fail-if condition holds
  65   malformed plan, page specification, link profile, samples file, recording or HAR file
  66   a named file or folder does not exist
  69   pronghorn, Chromium, openssl or flock is missing, the link does not work on this machine, or the page to capture
       cannot be loaded or has a status outside 2xx (--allow-status)
  73   the output folder cannot be created or is not empty, or a disk is full or unwritable (--resume continues)
  75   another campaign uses the folder or measures on this machine
  77   no permission for network namespaces or the TUN device
  130  interrupted; the loads so far are in the output folder (a capture writes nothing)
`;
