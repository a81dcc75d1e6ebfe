/* OUT/report.html: the curves of a training; one file, no script. */
#ifndef SFP_PRETRAIN_REPORT_H
#define SFP_PRETRAIN_REPORT_H

#include "pretrain/log.h"

sfp_status sfp__pretrain_report(const char *path, const sfp_log *log, sfp_error *err);

#endif
